"""How far each group has consumed each queue: (group, topic, queue) -> offset of the next message.

Any value is taken, also a smaller one (a group set back) and a negative one (Node clients commit -1 for "unknown"),
which then counts as absent. The table is written every 5 s when it changed and when the broker stops, and before the
answer where an administrator changed it. On disk and wire it is `{"offsetTable":{"topic@group":{"0":5}}}`. Pure.

Each offset has a *stamp*: the time of its commit, but always more than the stamp of the offset that it replaced. So of
two offsets that a master and its slave have for one queue the one with the higher stamp was committed later, whatever
their clocks say: that one counts, be it lower or higher. Stamps live in memory; an offset out of the file has 0, and of
two with 0 the higher one counts.

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

from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import RETRY_TOPIC_MAX_LENGTH, is_group_name, is_legal_name

log = logging.getLogger("rocketlet.broker.consumer_offsets")

# 40 MB of memory and file. A group that consumes 1,000 topics of 16 queues has 16,000.
MAX_ENTRIES = 1_000_000

_UNKNOWN = (0, 0, False)


Key = tuple[str, str, int]  # group, topic, queue id


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """An offset as another broker gets it."""

    group: str
    topic: str
    queue_id: int
    offset: int
    stamp: int
    own: bool = False
    """Whether it was committed here, and not taken over."""


class OffsetRefused(RocketletError):
    """An offset that is not kept: an illegal name or queue, or a full table; the text says which."""


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
        before = self._changes.pop(key, _UNKNOWN)[1]
        own = stamp is None
        self._changes[key] = self.version, max(self._clock(), before + 1) if stamp is None else stamp, own
        if self.on_change is not None:
            self.on_change()

    # -- between master and slave

    def stamp_of(self, group: str, topic: str, queue_id: int) -> int:
        """0 where there is no offset, or one out of the file."""
        return self._changes.get((group, topic, queue_id), _UNKNOWN)[1]

    def is_own(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an offset was committed here, and not taken over from another broker or from the file."""
        return self._changes.get((group, topic, queue_id), _UNKNOWN)[2]

    def changed_since(self, version: int, most: int) -> tuple[list[OffsetChange], int]:
        """At most so many of the offsets that have changed since a version, the earliest first; and the version that
        they bring whoever knows them up to."""
        newest: list[Key] = []
        for key in reversed(self._changes):
            if self._changes[key][0] <= version or len(newest) > most:
                break
            newest.append(key)
        if len(newest) > most:  # far behind: from the other end
            newest = list(islice((key for key, (at, _, _) in self._changes.items() if at > version), most))
        else:
            newest.reverse()
        if not newest:
            return [], self.version
        upto = self.version if len(newest) < most else self._changes[newest[-1]][0]
        changes = []
        for key in newest:
            _, stamp, own = self._changes[key]
            changes.append(OffsetChange(*key, self._groups[key[0]][key[1]][key[2]], stamp, own))
        return changes, upto

    def merge(self, change: OffsetChange) -> bool:
        """Take an offset of another broker if it is the newer one; whether it was. Raises OffsetRefused."""
        known = self._groups.get(change.group, {}).get(change.topic, {}).get(change.queue_id)
        if known is not None:
            stamp = self.stamp_of(change.group, change.topic, change.queue_id)
            if (change.stamp, change.offset if change.stamp == 0 else 0) <= (stamp, known if stamp == 0 else 0):
                return False
        self._commit(change.group, change.topic, change.queue_id, change.offset, change.stamp)
        return True

    def keep_below(self, end_of: Callable[[str, int], int]) -> int:
        """Move offsets that lie after the ends of their queues to these; returns how many."""
        moved = 0
        for group, topic, queues in list(self._all()):
            for queue_id, offset in list(queues.items()):
                end = end_of(topic, queue_id)
                if offset > end:
                    self.commit(group, topic, queue_id, end)
                    moved += 1
        return moved

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset to consume, or None where nothing, or something negative, was committed."""
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
        for group in self.groups_of(topic):
            queues = self._groups[group].pop(topic)
            self._entries -= len(queues)
            for queue_id in queues:
                self._changes.pop((group, topic, queue_id), None)
            if not self._groups[group]:
                del self._groups[group]
            self.version += 1

    def forget_group(self, group: str) -> None:
        topics = self._groups.pop(group, None)
        if topics is not None:
            self._entries -= sum(map(len, topics.values()))
            for topic, queues in topics.items():
                for queue_id in queues:
                    self._changes.pop((group, topic, queue_id), None)
            self.version += 1

    def to_body(self) -> dict[str, dict[str, dict[int, int]]]:
        """The body of request 43 and of consumerOffset.json."""
        return {"offsetTable": {f"{topic}@{group}": dict(queues) for group, topic, queues in self._all()}}

    def pieces(self) -> Iterator[bytes]:
        """The text of consumerOffset.json; the table may change between two pieces, and each offset is then told as it
        was or as it is."""
        before = b'{"offsetTable":{\n'
        for group in list(self._groups):
            for topic in self.topics_of(group):
                queues = self.of(group, topic)
                if queues:
                    yield b"%b%b:%b" % (before, msgspec.json.encode(f"{topic}@{group}"), msgspec.json.encode(queues))
                    before = b",\n"
        yield b"\n}}\n" if before == b",\n" else b'{"offsetTable":{}}\n'

    def load(self, body: Any) -> None:
        """Take over what was read from consumerOffset.json; what makes no sense in it is reported and left out."""
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
