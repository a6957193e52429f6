"""The values of the route table: brokers' registrations, and clients' answers.

Shared ones are frozen. All addresses are `host:port` as the broker wrote them.

Java: common/protocol/route/TopicRouteData.java (with QueueData and BrokerData), common/DataVersion.java
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

MASTER_ID = 0

# Bits of topicSysFlag.
UNIT = 1
HAS_UNIT_SUBSCRIPTION = 2


@dataclass(frozen=True, slots=True)
class DataVersion:
    """When and how often a broker changed its topics. Equal versions mean equal tables, as far as the broker knows."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of one topic on one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    flags: int = 0


@dataclass(slots=True)
class BrokerData:
    """A master and its slaves. The table returns copies."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]

    def copy(self) -> BrokerData:
        """Addresses sorted by broker id, as clients get them."""
        return BrokerData(self.cluster, self.broker_name, dict(sorted(self.addresses.items())))


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's registration. Its QueueData carry the broker's own name."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    connection: Hashable
    version: DataVersion = DataVersion()
    topics: Mapping[str, QueueData] | None = None
    filter_servers: tuple[str, ...] | None = None  # None keeps those of the last registration
    loopback_address: str | None = None  # the address for clients on the broker's own host
    epoch: int = 0  # if replicas elect their master: the epoch of the leader that the broker is, or follows


@dataclass(slots=True)
class Lease:
    """A broker that is alive, as far as we know."""

    broker_name: str
    broker_id: int
    connection: Hashable
    last_seen: int
    version: DataVersion
    ha_address: str
    loopback_address: str | None


@dataclass(frozen=True, slots=True)
class Master:
    """The answer to a slave's registration."""

    address: str
    ha_address: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic is."""

    queues: list[QueueData]
    brokers: list[BrokerData]
    filter_servers: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Expired:
    """A lease that ran out; its connection is to be closed."""

    address: str
    broker_name: str
    connection: Hashable


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sizes of the tables."""

    clusters: int
    broker_names: int
    addresses: int
    topics: int
    entries: int
    changes: int
