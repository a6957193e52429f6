"""How far a group has consumed a topic, for the metrics.

Java: broker/metrics/BrokerMetricsManager.java (5.x)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketlet.broker.consumer_lag import QueueLag
from rocketlet.broker.topic_table import Topic


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one group in one topic."""

    group: str
    topic: Topic
    queues: Sequence[QueueLag]

    @property
    def end(self) -> int:
        return sum(queue.end for queue in self.queues)

    @property
    def consumed(self) -> int:
        return sum(queue.consumed for queue in self.queues)

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def milliseconds(self) -> int:
        return max((queue.milliseconds for queue in self.queues), default=0)
