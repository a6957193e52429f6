"""Which broker serves which topic: the name server's five tables, and all rules for changing them.

topics    topic → broker name → QueueData         brokers   broker name → BrokerData (cluster, broker id → address)
clusters  cluster → broker names                  live      address → Lease (connection, data version, last seen)
filters   address → filter servers

Two more find what is removed with a broker (its topics) or a connection (its addresses) without searching all others.

Pure: `now` is an argument (milliseconds of any monotonic clock), and a connection is any value that compares equal to
itself. The connection over which a broker registered is its lease: `forget` ends it at once, `expire` ends silent ones.

Invariants:
- an address is in `live` exactly when it is in one BrokerData, under the name and id of its lease;
- a broker name is in `brokers` exactly when it has an address, and then in one cluster; no cluster is empty;
- no topic is empty; answers about a topic contain the QueueData of the names for which `_topics_of` has it, and those
  names are in `brokers`; any other QueueData is stale, and listed in `_stale` until it is swept;
- `changes` grows whenever an answer of `route`, `broker`, `clusters` or a list may differ from the previous one.

Three rules differ from RocketMQ's on purpose:
- A master's table is applied at every registration, not only when its data version is new: after a topic was created by
  hand, a 4.9 broker announces the new version with only that topic, and a name server started in between would never
  learn the others. An operator's change of write permission is therefore kept beside the table (`_orders`) and applied
  to each registration, until the master's data version or address changes or it unregisters: RocketMQ's own change ends
  at the same moments.
- A broker that unregisters must hold the name and id in its request, so a late unregistration does not remove a
  successor. One that asks whether its version is known has to register again if its lease is another connection, which
  may be dead.
- An address has one name and id, a name has one cluster: those of the last registration.

Java: namesrv/routeinfo/RouteInfoManager.java
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import PERM_READ, PERM_WRITE
from rocketlet.namesrv.route_values import (
    MASTER_ID,
    BrokerData,
    DataVersion,
    Expired,
    Lease,
    Master,
    QueueData,
    Registration,
    Route,
    Statistics,
)

# How long a silent broker's lease lasts. RocketMQ 4.9 has no setting for it.
LEASE_MS = 120_000

# Bounds on what peers can make us hold: about 1 GB of tables at worst, far above any real cluster.
MAX_ADDRESSES = 10_000
MAX_ADDRESSES_OF_CONNECTION = 100  # a broker has one; all of a connection go with it, at once
MAX_ENTRIES = 1_000_000  # of the topic table: one for each topic on each broker name
MAX_FILTER_SERVERS = 100  # of one broker; the feature is dead since 4.3
MAX_NAME_LENGTH = 512  # of clusters, brokers, addresses and topics; RocketMQ's longest is a retry topic with 262


class TableFull(RocketletError):
    """A registration would exceed one of the bounds above; nothing of it was applied."""


class OlderEpoch(RocketletError):
    """The registering master's replicas have elected another one since; nothing was applied."""


@dataclass(frozen=True, slots=True)
class _Order:
    """Write permission taken from (or given to) all topics of a broker, while its master reports `version`."""

    writable: bool
    version: DataVersion

    def over(self, data: QueueData) -> QueueData:
        """Restoring sets only read and write, as RocketMQ does: a template topic loses its inherit bit."""
        perm = PERM_READ | PERM_WRITE if self.writable else data.perm & ~PERM_WRITE
        return data if perm == data.perm else replace(data, perm=perm)


class RouteTable:
    """The five tables; nothing here waits, does I/O or reads a clock."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, Lease] = {}
        self._topics_of: dict[str, set[str]] = {}  # by broker name
        # By the name of a broker that has left, a set for each time it left, as to join them takes 0.1 µs a topic; see
        # `sweep`.
        self._stale: dict[str, list[set[str]]] = {}
        self.on_stale: Callable[[], None] = lambda: None
        """Called when there is something to sweep."""
        self._addresses_of: dict[Hashable, set[str]] = {}  # by connection
        self._filters: dict[str, tuple[str, ...]] = {}
        self._orders: dict[str, _Order] = {}
        self._epochs: dict[str, int] = {}  # of broker names whose replicas elect a master: the newest known epoch
        self._entries = 0
        self.changes = 0

    def __repr__(self) -> str:
        return f"<RouteTable {self.statistics()}>"

    def __contains__(self, address: str) -> bool:
        """Whether a broker is registered at the address."""
        return address in self._live

    def is_held(self, address: str, connection: Hashable) -> bool:
        """Whether the last registration of the address came over this connection, which is open."""
        lease = self._live.get(address)
        return lease is not None and lease.connection == connection

    def statistics(self) -> Statistics:
        return Statistics(
            len(self._clusters), len(self._brokers), len(self._live), len(self._topics), self._entries, self.changes
        )

    # ---- brokers' requests

    def register(self, registration: Registration, now: int) -> Master | None:
        """Apply a registration; the answer is the master of the sender's name, if the sender is a slave and has one.

        Raises TableFull or OlderEpoch, and then nothing was applied.
        """
        self.check(registration)
        self._settle_address(registration)
        if registration.epoch:
            current = self._epochs.get(registration.broker_name, 0)
            self._epochs[registration.broker_name] = max(current, registration.epoch)
        self._drop_lease(registration.address)
        self._live[registration.address] = Lease(
            registration.broker_name,
            registration.broker_id,
            registration.connection,
            now,
            registration.version,
            registration.ha_address,
            registration.loopback_address,
        )
        self._addresses_of.setdefault(registration.connection, set()).add(registration.address)
        if registration.broker_id == MASTER_ID:
            self._apply_topics(registration.broker_name, registration.topics or {}, registration.version)
        if registration.filter_servers is not None:
            self._set_filters(registration.address, registration.filter_servers)
        return None if registration.broker_id == MASTER_ID else self.master(registration.broker_name)

    def check(self, registration: Registration, *, besides: int = 0) -> int:
        """How many entries of topics this registration would add. `besides`: those that others will have added.

        Raises TableFull or OlderEpoch, where `register` would; nothing is applied.
        """
        self._check_epoch(registration)
        topics = (registration.topics or {}) if registration.broker_id == MASTER_ID else {}
        return self._check_room(registration, topics, besides)

    def unregister(self, address: str, broker_name: str, broker_id: int) -> bool:
        """A broker unregisters. False, without effect, unless that address holds that name and id."""
        lease = self._live.get(address)
        if lease is None or (lease.broker_name, lease.broker_id) != (broker_name, broker_id):
            return False
        self._remove(address)
        return True

    def forget(self, connection: Hashable) -> list[str]:
        """A connection has closed, and with it go the brokers whose last registration came over it. Returns their
        addresses."""
        addresses = sorted(self._addresses_of.get(connection, ()))
        for address in addresses:
            self._remove(address)
        return addresses

    def expire(self, now: int, lease_ms: int = LEASE_MS) -> Iterator[Expired]:
        """Remove the brokers that have been silent for longer than a lease, one at a time: all 10,000 may be, where a
        network has failed. One that is heard of before its turn stays."""
        silent = [address for address, lease in self._live.items() if lease.last_seen + lease_ms < now]
        for address in silent:
            lease = self._live.get(address)
            if lease is not None and lease.last_seen + lease_ms < now:
                self._remove(address)
                yield Expired(address, lease.broker_name, lease.connection)

    def known_version(
        self, address: str, queried: DataVersion, connection: Hashable, now: int
    ) -> tuple[bool, DataVersion | None]:
        """Whether `queried` differs from the version stored for the address, and that version. If it does not, the
        lease is renewed."""
        lease = self._live.get(address)
        if lease is None:
            return True, None
        has_changed = lease.version != queried or lease.connection != connection
        if not has_changed:
            lease.last_seen = now
        return has_changed, lease.version

    # ---- operators' requests

    def wipe_write_permission(self, broker_name: str) -> Iterator[None]:
        """Producers no longer choose this broker. A step for each of its topics."""
        return self._order(broker_name, writable=False)

    def add_write_permission(self, broker_name: str) -> Iterator[None]:
        """Make all topics of the broker readable and writable. A step for each of them."""
        return self._order(broker_name, writable=True)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or in one cluster. A broker that still has it brings it back when it registers."""
        queues = self._topics.get(topic)
        if queues is None:
            return
        names = (
            list(queues) if cluster is None else [name for name in self._clusters.get(cluster, ()) if name in queues]
        )
        self._drop_queues(topic, names)

    # ---- queries

    def names_of(self, topic: str) -> list[str]:
        """The live brokers that have the topic, sorted."""
        return sorted(name for name, _ in self._queues(topic))

    def route(self, topic: str, names: Sequence[str] | None = None) -> Route | None:
        """Where a topic is. `names`: what these brokers have of it, if they still do. None if no live broker has it."""
        queues = self._topics.get(topic, {})
        wanted = self.names_of(topic) if names is None else names
        queues = {name: queues[name] for name in wanted if topic in self._topics_of.get(name, ())}
        if not queues:
            return None
        brokers = [self._brokers[name].copy() for name in queues]
        filters = {
            address: self._filters[address]
            for broker in brokers
            for address in broker.addresses.values()
            if address in self._filters
        }
        return Route(list(queues.values()), brokers, filters)

    def master(self, broker_name: str) -> Master | None:
        """The master of a name, when it is alive."""
        broker = self._brokers.get(broker_name)
        address = broker.addresses.get(MASTER_ID) if broker else None
        return None if address is None else Master(address, self._live[address].ha_address)

    def broker(self, broker_name: str) -> BrokerData | None:
        """A broker name with all its addresses."""
        broker = self._brokers.get(broker_name)
        return broker.copy() if broker else None

    def broker_names(self) -> list[str]:
        """All of them, sorted."""
        return sorted(self._brokers)

    def clusters(self) -> dict[str, list[str]]:
        """The broker names of every cluster, sorted."""
        return {cluster: sorted(self._clusters[cluster]) for cluster in sorted(self._clusters)}

    def local_address(self, address: str) -> str:
        """The address at which a client on the broker's own host reaches it."""
        lease = self._live.get(address)
        return (lease.loopback_address if lease else None) or address

    def all_topics(self) -> list[str]:
        """In no order that means something; some may have no live broker: ask `is_served`."""
        return list(self._topics)

    def count_brokers(self, topic: str) -> int:
        """How many brokers an answer about the topic goes through; some may have left."""
        return len(self._topics.get(topic, ()))

    def is_served(self, topic: str) -> bool:
        """Whether a live broker has the topic."""
        return any(True for _ in self._queues(topic))

    def is_in_cluster(self, topic: str, cluster: str) -> bool:
        """Whether a broker of the cluster has the topic."""
        names = self._clusters.get(cluster, set())
        return any(name in names for name, _ in self._queues(topic))

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, which double as topics, and a broker that knows the rest."""
        return sorted({*self._clusters, *self._brokers}), min(self._live, default=None)

    def flags_of(self, topic: str) -> int:
        """What any of its brokers says of a topic."""
        flags = 0
        for _, data in self._queues(topic):
            flags |= data.flags
        return flags

    # ---- what brokers that have left leave behind

    def sweep(self) -> Iterator[None]:
        """Removes the topics of brokers that have left, one at a time: a broker may have had 200,000, which takes 1 µs
        each. No answer has them any more."""
        while self._stale:
            name, parts = next(iter(self._stale.items()))
            while parts:
                while parts[-1]:
                    self._forget_queue(parts[-1].pop(), name)
                    yield
                parts.pop()
            del self._stale[name]

    # ---- inside

    def _queues(self, topic: str) -> Iterator[tuple[str, QueueData]]:
        """What live brokers have of a topic."""
        for name, data in self._topics.get(topic, {}).items():
            if topic in self._topics_of.get(name, ()):
                yield name, data

    def _check_epoch(self, registration: Registration) -> None:
        name, epoch = registration.broker_name, registration.epoch
        newest = self._epochs.get(name, 0)
        if registration.broker_id == MASTER_ID and 0 < epoch < newest:
            raise OlderEpoch(f"{registration.address} led {name} in epoch {epoch}, and now it is epoch {newest}")

    def _check_room(self, registration: Registration, topics: Mapping[str, QueueData], besides: int) -> int:
        address, name = registration.address, registration.broker_name
        filters = registration.filter_servers or ()
        if len(filters) > MAX_FILTER_SERVERS:
            raise TableFull(f"{address} registers {len(filters)} filter servers (MAX_FILTER_SERVERS)")
        names = (registration.cluster, name, address, registration.ha_address, registration.loopback_address or "")
        longest = max(map(len, (*names, *filters, *topics)))
        if longest > MAX_NAME_LENGTH:
            raise TableFull(f"{name[:100]} registers a name of {longest} letters; {MAX_NAME_LENGTH} is the limit")
        if address not in self._live and len(self._live) >= MAX_ADDRESSES:
            raise TableFull(
                f"{address} cannot register: {MAX_ADDRESSES} brokers are registered already (MAX_ADDRESSES)"
            )
        others = self._addresses_of.get(registration.connection, set()) - {address}
        if len(others) >= MAX_ADDRESSES_OF_CONNECTION:
            raise TableFull(
                f"{address} cannot register: its connection has registered {len(others)} brokers already"
                " (MAX_ADDRESSES_OF_CONNECTION)"
            )
        new = sum(1 for topic in topics if name not in self._topics.get(topic, ()))
        if new and self._entries + besides + new > MAX_ENTRIES:
            raise TableFull(
                f"{address} cannot register {besides + new} new topics: the limit is {MAX_ENTRIES} in all (MAX_ENTRIES)"
            )
        return new

    def _settle_address(self, registration: Registration) -> None:
        """Make the address the holder of its name and id, and of nothing else."""
        name, broker_id, address = registration.broker_name, registration.broker_id, registration.address
        current = self._live.get(address)
        if current is not None and current.broker_name != name:
            self._remove(address)
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = BrokerData(registration.cluster, name, {})
        elif broker.cluster != registration.cluster:
            self._leave_cluster(broker)
            broker.cluster = registration.cluster
        self._clusters.setdefault(registration.cluster, set()).add(name)
        # The broker data may lose its last address here for a moment and still keep its topics: to clients, a promoted
        # slave or a broker that moved to another address is the same broker.
        if current is not None and current.broker_name == name and current.broker_id != broker_id:
            self._vacate(broker, current.broker_id)
        if broker.addresses.get(broker_id, address) != address:
            self._vacate(broker, broker_id)
        if broker.addresses.get(broker_id) != address:
            broker.addresses[broker_id] = address
            self.changes += 1
        elif current is not None and current.loopback_address != registration.loopback_address:
            self.changes += 1

    def _apply_topics(self, name: str, topics: Mapping[str, QueueData], version: DataVersion) -> None:
        order = self._orders.get(name)
        if order is not None and order.version != version:
            del self._orders[name]
            order = None
        live, stale = self._topics_of.setdefault(name, set()), self._stale.get(name, ())
        for topic, data in topics.items():
            assert data.broker_name == name
            effective = order.over(data) if order else data
            queues = self._topics.setdefault(topic, {})
            if topic not in live or queues[name] != effective:
                self._entries += name not in queues
                queues[name] = effective
                live.add(topic)
                for left_behind in stale:
                    left_behind.discard(topic)
                self.changes += 1
        if not live:
            del self._topics_of[name]

    def _order(self, name: str, *, writable: bool) -> Iterator[None]:
        master = self.master(name)
        order = _Order(writable, self._live[master.address].version if master else DataVersion())
        if master is not None:
            self._orders[name] = order
        for topic in list(self._topics_of.get(name, ())):
            if master is not None and self._orders.get(name) is not order:
                return  # another order or another master came meanwhile
            if topic in self._topics_of.get(name, ()):
                queues = self._topics[topic]
                queues[name] = order.over(queues[name])
                self.changes += 1
            yield

    def _set_filters(self, address: str, servers: tuple[str, ...]) -> None:
        if servers == self._filters.get(address, ()):
            return
        if servers:
            self._filters[address] = servers
        else:
            del self._filters[address]
        self.changes += 1

    def _remove(self, address: str) -> None:
        lease = self._live[address]
        broker = self._brokers[lease.broker_name]
        self._vacate(broker, lease.broker_id)
        if not broker.addresses:
            self._leave_cluster(broker)
            del self._brokers[broker.broker_name]
            self._epochs.pop(broker.broker_name, None)
            topics = self._topics_of.pop(broker.broker_name, None)
            if topics:
                self._stale.setdefault(broker.broker_name, []).append(topics)
                self.on_stale()

    def _vacate(self, broker: BrokerData, broker_id: int) -> None:
        """This id is free again."""
        address = broker.addresses.pop(broker_id)
        self._drop_lease(address)
        self._filters.pop(address, None)
        if broker_id == MASTER_ID:
            self._orders.pop(broker.broker_name, None)
        self.changes += 1

    def _drop_lease(self, address: str) -> None:
        lease = self._live.pop(address, None)
        if lease is not None:
            addresses = self._addresses_of[lease.connection]
            addresses.discard(address)
            if not addresses:
                del self._addresses_of[lease.connection]

    def _leave_cluster(self, broker: BrokerData) -> None:
        self.changes += 1
        names = self._clusters[broker.cluster]
        names.discard(broker.broker_name)
        if not names:
            del self._clusters[broker.cluster]

    def _drop_queues(self, topic: str, names: list[str]) -> None:
        self.changes += 1
        for name in names:
            self._forget_queue(topic, name)
            live = self._topics_of.get(name, set())
            for topics in (live, *self._stale.get(name, ())):
                topics.discard(topic)
            if not live:
                self._topics_of.pop(name, None)

    def _forget_queue(self, topic: str, name: str) -> None:
        queues = self._topics[topic]
        del queues[name]
        self._entries -= 1
        if not queues:
            del self._topics[topic]
