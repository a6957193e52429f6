"""The parts of a broker that the metrics read.

Java: broker/BrokerController.java (its getters)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketlet.access.control import AccessControl
from rocketlet.broker.clients import Clients
from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_lag import ConsumerLag, QueueLag
from rocketlet.broker.half_messages import HalfMessages
from rocketlet.broker.handlers.broker_state import BrokerState
from rocketlet.broker.identity import Identity
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.popping.waiting import Waiting
from rocketlet.broker.registration import Registration
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.tables import Tables
from rocketlet.broker.timing.timers import Timers
from rocketlet.broker.topic_table import Topic
from rocketlet.remoting.server import Server
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlet.broker.replica_group import ReplicaGroup


@dataclass(slots=True)
class Watched:
    """The parts of one broker. `servers` and `state` are there once the ports are open."""

    identity: Identity
    settings: Settings
    tables: Tables
    clients: Clients
    statistics: Statistics
    store: MessageStore
    halves: HalfMessages
    long_poll: LongPoll
    registration: Registration
    pops: Pops
    waiting_pops: Waiting
    timers: Timers
    lag: ConsumerLag
    access: AccessControl
    clock: Callable[[], int]
    queue_lag: bool
    servers: dict[str, Server] = field(default_factory=dict)
    state: BrokerState | None = None
    group: ReplicaGroup | None = None

    def in_progress(self) -> Mapping[str, int]:
        """Requests by family, over all ports."""
        counts: dict[str, int] = {}
        for server in self.servers.values():
            for family, count in server.statistics().in_flight.items():
                counts[family] = counts.get(family, 0) + count
        return counts


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
