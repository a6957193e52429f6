"""How far each group has consumed each queue: (group, topic, queue) -> offset of the next message.

Any value is accepted, including a smaller one (a reset group) and a negative one (Node clients commit -1 for
"unknown"), which counts as absent. The table is written every 5 s if it has changed, when the broker stops, and before
the answer to an administrator's change. On disk and wire it is `{"offsetTable":{"topic@group":{"0":5}}}`. Pure.

Each offset has a *stamp*: the time of its commit, but always higher than the stamp of the offset that it replaced. So
if a master and its slave have two offsets for one queue, the one with the higher stamp was committed later, whatever
their clocks say: that one wins, whether it is lower or higher. Stamps live in memory; an offset from the file has 0,
and of two with 0 the higher offset wins.

Invariants: names are legal, so that `topic@group` splits at its one `@`; there are at most MAX_ENTRIES offsets,
whatever peers commit; `version` grows with every change.

Java: broker/offset/ConsumerOffsetManager.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from rocketlet.common import json_pieces
from rocketlet.common.errors import RocketletError
from rocketlet.common.json_pieces import object_pieces
from rocketlet.common.topic import RETRY_TOPIC_MAX_LENGTH, is_group_name, is_legal_name

log = logging.getLogger("rocketlet.broker.consumer_offsets")

# 40 MB of memory and file. A group that consumes 1,000 topics of 16 queues has 16,000.
MAX_ENTRIES = 1_000_000

_UNKNOWN = (0, 0, False)


Key = tuple[str, str, int]  # group, topic, queue id


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """An offset as sent to another broker."""

    group: str
    topic: str
    queue_id: int
    offset: int
    stamp: int
    own: bool = False
    """Whether it was committed here, and not taken over."""


class OffsetRefused(RocketletError):
    """A refused offset: an illegal name or queue, or a full table; the text says which."""


class ConsumerOffsets:
    """The offset table of one broker."""

    def __init__(self, clock: Callable[[], int] = lambda: 1) -> None:
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._entries = 0
        self._clock = clock
        # (version, stamp, whether committed here) of each offset; in the order of their last changes.
        self._changes: dict[Key, tuple[int, int, bool]] = {}
        self.version = 0
        self.on_change: Callable[[], None] | None = None
        self.on_commit: Callable[[str, str, int, int], None] | None = None
        """Told of each offset that is committed here, not of those that another broker has."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Raises OffsetRefused."""
        self._commit(group, topic, queue_id, offset, None)
        if self.on_commit is not None:
            self.on_commit(group, topic, queue_id, offset)

    def _commit(self, group: str, topic: str, queue_id: int, offset: int, stamp: int | None) -> None:
        queues = self._groups.get(group, {}).get(topic)
        if queues is not None and queue_id in queues:
            if offset < queues[queue_id]:
                log.info(
                    "group %s goes back in queue %d of %s: from %d to %d",
                    group,
                    queue_id,
                    topic,
                    queues[queue_id],
                    offset,
                )
            queues[queue_id] = offset
        else:
            self._add(group, topic, queue_id, offset)
        self.version += 1
        key = group, topic, queue_id
        previous_stamp = self._changes.pop(key, _UNKNOWN)[1]
        is_own = stamp is None
        self._changes[key] = self.version, max(self._clock(), previous_stamp + 1) if stamp is None else stamp, is_own
        if self.on_change is not None:
            self.on_change()

    # -- between master and slave

    def stamp_of(self, group: str, topic: str, queue_id: int) -> int:
        """0 if there is no offset, or one from the file."""
        return self._changes.get((group, topic, queue_id), _UNKNOWN)[1]

    def is_own(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an offset was committed here, not received from another broker or read from the file."""
        return self._changes.get((group, topic, queue_id), _UNKNOWN)[2]

    def changed_since(self, version: int, limit: int) -> tuple[list[OffsetChange], int]:
        """At most that many of the offsets changed since a version, the earliest first, and the version reached with
        them."""
        newest: list[Key] = []
        for key in reversed(self._changes):
            if self._changes[key][0] <= version or len(newest) > limit:
                break
            newest.append(key)
        if len(newest) > limit:  # far behind: from the other end
            newest = list(islice((key for key, (at, _, _) in self._changes.items() if at > version), limit))
        else:
            newest.reverse()
        if not newest:
            return [], self.version
        upto = self.version if len(newest) < limit else self._changes[newest[-1]][0]
        changes = []
        for key in newest:
            _, stamp, own = self._changes[key]
            changes.append(OffsetChange(*key, self._groups[key[0]][key[1]][key[2]], stamp, own))
        return changes, upto

    def merge(self, change: OffsetChange) -> bool:
        """Apply another broker's offset if it is newer. Returns whether it was. Raises OffsetRefused."""
        present = self._groups.get(change.group, {}).get(change.topic, {}).get(change.queue_id)
        if present is not None:
            stamp = self.stamp_of(change.group, change.topic, change.queue_id)
            if (change.stamp, change.offset if change.stamp == 0 else 0) <= (stamp, present if stamp == 0 else 0):
                return False
        self._commit(change.group, change.topic, change.queue_id, change.offset, change.stamp)
        return True

    def keep_below(self, end_of: Callable[[str, int], int]) -> int:
        """Move offsets beyond the ends of their queues to these ends. Returns their number."""
        moved = 0
        for group, topic, queues in list(self._all()):
            for queue_id, offset in list(queues.items()):
                end = end_of(topic, queue_id)
                if offset > end:
                    self.commit(group, topic, queue_id, end)
                    moved += 1
        return moved

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset to consume, or None if nothing, or a negative offset, was committed."""
        offset = self._groups.get(group, {}).get(topic, {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue -> offset."""
        return self._groups.get(group, {}).get(topic, {})

    def topics_of(self, group: str) -> list[str]:
        return list(self._groups.get(group, {}))

    def groups_of(self, topic: str) -> list[str]:
        return [group for group, topics in self._groups.items() if topic in topics]

    def forget_topic(self, topic: str) -> None:
        for _ in self.forgetting(topic=topic):
            pass

    def forgetting(self, *, group: str = "", topic: str = "") -> Iterator[None]:
        """Forgets the offsets of a group or of a topic one at a time, for there may be a million."""
        if group:
            places = [(group, name) for name in self.topics_of(group)]
        else:
            places = [(name, topic) for name in self.groups_of(topic)]
        for place in places:
            for queue_id in list(self.of(*place)):
                self._forget(*place, queue_id)
                yield

    def _forget(self, group: str, topic: str, queue_id: int) -> None:
        topics = self._groups.get(group, {})
        queues = topics.get(topic, {})
        if queue_id not in queues:
            return
        del queues[queue_id]
        self._entries -= 1
        self._changes.pop((group, topic, queue_id), None)
        self.version += 1
        if not queues:
            del topics[topic]
        if not topics:
            del self._groups[group]

    def to_body(self) -> dict[str, dict[str, dict[int, int]]]:
        """All of it, as the answer to request 43 has it."""
        return {"offsetTable": {f"{topic}@{group}": dict(queues) for group, topic, queues in self._all()}}

    def pieces(self, separator: bytes = b",") -> Iterator[bytes]:
        """The JSON of `to_body`, also of consumerOffset.json."""
        prefix = b'{"offsetTable":{'
        for group in list(self._groups):
            for topic in self.topics_of(group):
                queues = dict(self.of(group, topic))
                if not queues:
                    continue
                name = prefix + msgspec.json.encode(f"{topic}@{group}") + b":"
                prefix = separator
                if len(queues) <= json_pieces.PIECE:
                    yield name + msgspec.json.encode(queues)
                else:
                    yield name
                    yield from object_pieces((str(queue_id), offset) for queue_id, offset in queues.items())
        yield b"}}" if prefix == separator else b'{"offsetTable":{}}'

    def load(self, body: Any) -> None:
        """Load consumerOffset.json; invalid entries are logged and skipped."""
        table = body.get("offsetTable") if isinstance(body, dict) else None
        for key, queues in (table if isinstance(table, dict) else {}).items():
            topic, _, group = key.partition("@")
            for queue_id, offset in (queues if isinstance(queues, dict) else {"": None}).items():
                try:
                    self._add(group, topic, int(queue_id), int(str(offset)))
                    self.version += 1
                    self._changes[group, topic, int(queue_id)] = self.version, 0, False
                except (OffsetRefused, TypeError, ValueError) as error:
                    log.warning("consumer offset %s:%s of %s is left out: %s", queue_id, offset, key, error)

    def __len__(self) -> int:
        return self._entries

    def __repr__(self) -> str:
        return f"<ConsumerOffsets: {self._entries} offsets of {len(self._groups)} groups>"

    def _all(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        for group, topics in self._groups.items():
            for topic, queues in topics.items():
                yield group, topic, queues

    def _add(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if not is_group_name(group) or not is_legal_name(topic) or len(topic) > RETRY_TOPIC_MAX_LENGTH:
            raise OffsetRefused(f"group {group!r} or topic {topic!r} is not a legal name")
        if queue_id < 0:
            raise OffsetRefused(f"queue {queue_id} of topic {topic}: a queue id is not negative")
        if self._entries >= MAX_ENTRIES:
            raise OffsetRefused(
                f"the table of consumer offsets is full ({MAX_ENTRIES}); delete groups that are not used"
            )
        queues = self._groups.setdefault(group, {}).setdefault(topic, {})
        self._entries += queue_id not in queues
        queues[queue_id] = offset
