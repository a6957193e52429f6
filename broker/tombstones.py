"""What was deleted here, for slaves that have not heard of it: topics and groups, each with the place in the log where
that was.

A slave learns from it that something is gone; from what is merely missing in a table it concludes nothing, for a master
that lost a file would take everything with it. The place in the log tells a slave which messages of a topic are the
deleted ones, however far it is, and whether the topic has been made again since. Pure.

Invariant: at most MOST are kept, the latest ones.

Java: nothing of the kind; there deletions do not reach slaves
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
        self._stones: list[Tombstone] = []
        self._next = 1

    def add(self, kind: str, name: str, log_offset: int) -> None:
        self._stones = [stone for stone in self._stones if (stone.kind, stone.name) != (kind, name)][-MOST + 1 :]
        self._stones.append(Tombstone(self._next, kind, name, log_offset))
        self._next += 1

    @property
    def last(self) -> int:
        """The number of the latest one; 0 where there is none."""
        return self._next - 1

    def after(self, number: int) -> list[Tombstone]:
        """Those with higher numbers, in their order."""
        return [stone for stone in self._stones if stone.number > number]

    def has(self, stone: Tombstone) -> bool:
        """Whether this deletion is known already, whatever number it has."""
        return any(
            (one.kind, one.name, one.log_offset) == (stone.kind, stone.name, stone.log_offset) for one in self._stones
        )

    def to_body(self) -> dict[str, Any]:
        """The content of rocketlet/tombstones.json."""
        return {"next": self._next, "gone": [[one.number, one.kind, one.name, one.log_offset] for one in self._stones]}

    def load(self, body: Any) -> None:
        """Take over what was read from the file; what makes no sense is reported and left out."""
        if not isinstance(body, dict):
            return
        try:
            stones = [Tombstone(int(n), str(kind), str(name), int(at)) for n, kind, name, at in body["gone"]]
            self._stones, self._next = stones[-MOST:], max(int(body["next"]), 1)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("tombstones.json makes no sense and is left out: %s", error)

    def __len__(self) -> int:
        return len(self._stones)
