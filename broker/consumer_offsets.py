"""How far each group has consumed each queue: (group, topic, queue) -> offset of the next message.

Any value is taken, also a smaller one (a group set back) and a negative one (Node clients commit -1 for "unknown"),
which then counts as absent. The table is written every 5 s when it changed and when the broker stops, and before the
answer where an administrator changed it. On disk and wire it is `{"offsetTable":{"topic@group":{"0":5}}}`. Pure.

Invariants: names are legal, so that `topic@group` splits at its one `@`; there are at most MAX_ENTRIES offsets,
whatever peers commit; `version` grows with every change.

Java: broker/offset/ConsumerOffsetManager.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import is_legal_name

log = logging.getLogger("rocketlet.broker.consumer_offsets")

# 40 MB of memory and file. A group that consumes 1,000 topics of 16 queues has 16,000.
MAX_ENTRIES = 1_000_000


class OffsetRefused(RocketletError):
    """An offset that is not kept: an illegal name or queue, or a full table; the text says which."""


class ConsumerOffsets:
    """The offset table of one broker."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._entries = 0
        self.version = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Raises OffsetRefused."""
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

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another. Raises OffsetRefused."""
        for queue_id, offset in self.of(source, topic).items():
            self.commit(target, topic, queue_id, offset)

    def forget_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            self._entries -= len(self._groups[group].pop(topic))
            if not self._groups[group]:
                del self._groups[group]
            self.version += 1

    def forget_group(self, group: str) -> None:
        topics = self._groups.pop(group, None)
        if topics is not None:
            self._entries -= sum(map(len, topics.values()))
            self.version += 1

    def to_body(self) -> dict[str, dict[str, dict[int, int]]]:
        """The body of request 43 and of consumerOffset.json."""
        return {"offsetTable": {f"{topic}@{group}": dict(queues) for group, topic, queues in self._all()}}

    def load(self, body: Any) -> None:
        """Take over what was read from consumerOffset.json; what makes no sense in it is reported and left out."""
        table = body.get("offsetTable") if isinstance(body, dict) else None
        for key, queues in (table if isinstance(table, dict) else {}).items():
            topic, _, group = key.partition("@")
            for queue_id, offset in (queues if isinstance(queues, dict) else {"": None}).items():
                try:
                    self._add(group, topic, int(queue_id), int(str(offset)))
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
        if not is_legal_name(group) or not is_legal_name(topic):
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
