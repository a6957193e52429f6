"""The lag of groups, queue by queue: in messages, and in time.

Only readable messages count: a group whose offset lies before the first stored message lags by the stored ones. Never
negative: an offset beyond the end of a queue is no lag.

Java: broker/offset/ConsumerOffsetManager.java, broker/metrics/ConsumerLagCalculator.java (5.x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketlet.broker.clients import Clients
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue of a topic and one group. `consumed` is the next offset, 0 if nothing was committed."""

    queue_id: int
    begin: int
    end: int
    consumed: int
    milliseconds: int
    """Age of the first message that is not consumed; 0 where there is none."""

    @property
    def messages(self) -> int:
        return max(self.end - max(self.consumed, self.begin), 0)


class ConsumerLag:
    """Compares offsets with the ends of queues."""

    def __init__(
        self,
        topics: TopicTable,
        clients: Clients,
        offsets: ConsumerOffsets,
        store: MessageStore,
        clock: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._store = store
        self._clock = clock

    def topics_of(self, group: str, only: str | None = None, *, offline: bool = False) -> list[Topic]:
        """Topics that a group consumes: with offsets, existing, and subscribed to if it is online.

        `only` that topic, if given; `offline`: also topics that the online group no longer subscribes to.
        """
        online = self._clients.consumers.get(group)
        topics = []
        for name in [only] if only else self._offsets.topics_of(group):
            topic = self._topics.get(name)
            if topic is None:
                continue
            if online is not None and online.subscriptions and name not in online.subscriptions and not offline:
                continue
            topics.append(topic)
        return topics

    def of(self, group: str, topic: str, queue_id: int) -> QueueLag:
        """One queue. A look-up: it may have to read an old message."""
        store = self._store
        begin, end = store.queue_begin(topic, queue_id), store.queue_end(topic, queue_id)
        consumed = self._offsets.get(group, topic, queue_id) or 0
        first = max(consumed, begin)
        return QueueLag(queue_id, begin, end, consumed, self.age(topic, queue_id, first) if first < end else 0)

    def age(self, topic: str, queue_id: int, offset: int) -> int:
        """How long ago a message was stored, in milliseconds; 0 if there is none."""
        stored = self._store.store_time_at(topic, queue_id, offset)
        return max(self._clock() - stored, 0) if stored >= 0 else 0
