"""Deletions for slaves that have not seen them: topics and groups, each with the log offset of the deletion.

A slave deletes only what has a tombstone, not what is merely missing from a table, because a master that lost a file
would otherwise wipe its slaves. The log offset shows a slave which messages of a topic are the deleted ones, however
far it lags, and whether the topic has been recreated since. Pure.

Invariant: at most MOST are kept, the latest ones.

Java: none; there deletions do not reach slaves
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("rocketlet.broker.tombstones")

MOST = 10_000
TOPIC, GROUP, OFFSETS = "topic", "group", "offsets"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """`kind` is TOPIC, GROUP or OFFSETS (of a group, while the group stays). `number` counts them."""

    number: int
    kind: str
    name: str
    log_offset: int


class Tombstones:
    """The tombstones of one broker."""

    def __init__(self) -> None:
        self._stones: dict[tuple[str, str], Tombstone] = {}  # by kind and name, in the order of their numbers
        self._next = 1

    def add(self, kind: str, name: str, log_offset: int) -> None:
        self._put(Tombstone(self._next, kind, name, log_offset))
        self._next += 1

    def _put(self, stone: Tombstone) -> None:
        self._stones.pop((stone.kind, stone.name), None)
        self._stones[stone.kind, stone.name] = stone
        if len(self._stones) > MOST:
            del self._stones[next(iter(self._stones))]

    @property
    def last(self) -> int:
        """The number of the latest one; 0 if there is none."""
        return self._next - 1

    def after(self, number: int) -> list[Tombstone]:
        """Tombstones with higher numbers, in order."""
        return [stone for stone in self._stones.values() if stone.number > number]

    def deleted_topics(self) -> dict[str, int]:
        """Where the log ended when a topic was deleted: what lies before is none of its messages any more."""
        return {stone.name: stone.log_offset for stone in self._stones.values() if stone.kind == TOPIC}

    def lower(self, log_end: int) -> set[str]:
        """Have no topic deleted later in the log than that; returns the topics that were. Slaves hear of it."""
        later = [name for name, log_offset in self.deleted_topics().items() if log_offset > log_end]
        for name in later:
            self.add(TOPIC, name, log_end)
        return set(later)

    def has(self, stone: Tombstone) -> bool:
        """Whether this deletion is already known, under any number."""
        present = self._stones.get((stone.kind, stone.name))
        return present is not None and present.log_offset == stone.log_offset

    def to_body(self) -> dict[str, Any]:
        """The content of rocketlet/tombstones.json."""
        gone = [[stone.number, stone.kind, stone.name, stone.log_offset] for stone in self._stones.values()]
        return {"next": self._next, "gone": gone}

    def load(self, body: Any) -> None:
        """Load the file; invalid entries are logged and skipped."""
        if not isinstance(body, dict):
            return
        try:
            stones = [Tombstone(int(n), str(kind), str(name), int(at)) for n, kind, name, at in body["gone"]]
            following = max(int(body["next"]), 1)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("tombstones.json makes no sense and is left out: %s", error)
            return
        self._stones, self._next = {}, following
        for stone in stones:
            self._put(stone)

    def __len__(self) -> int:
        return len(self._stones)
