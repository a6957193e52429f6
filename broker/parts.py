"""The parts of a broker that exist in either role, made in the order in which they need each other.

Java: broker/BrokerController.java (its constructor and getters)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketlet.access.config import AccessConfig
from rocketlet.access.control import AccessControl
from rocketlet.access.folder import Folder, RealFolder
from rocketlet.broker.clients import Clients
from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.consumer_lag import ConsumerLag
from rocketlet.broker.durability import promised
from rocketlet.broker.guarded_log import guarded
from rocketlet.broker.half_messages import HalfMessages
from rocketlet.broker.handlers.send_targets import SendTargets
from rocketlet.broker.identity import Identity
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.overload import Overload
from rocketlet.broker.own_address import host_name
from rocketlet.broker.popping.dead_letters import DeadLetters
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.popping.waiting import Waiting
from rocketlet.broker.put_again import FilterBits
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.broker.registration import Registration
from rocketlet.broker.role import Role, RoleFile, Standing, with_standing
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.broker.send_terms import CurrentTerms, send_terms
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.tables import Tables
from rocketlet.broker.timing.timers import Timers
from rocketlet.common.clock import WallClock
from rocketlet.common.config_file import Loaded
from rocketlet.failover.config import failover_config
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.server import Server, tls_contexts
from rocketlet.remoting.transport import Network
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.dial import dial_of
from rocketlet.replication.slave import MasterFinder
from rocketlet.store.config import BrokerRole, StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlet.broker.handlers.broker_state import BrokerState
    from rocketlet.broker.replica_group import Coordination, ReplicaGroup


class Parts:
    """See the module. `servers` and `state` are there once the ports are open."""

    def __init__(
        self,
        loaded: Loaded,
        network: Network,
        disk: Disk,
        clock: WallClock,
        rng: random.Random,
        accounts: Folder | None,
        coordination: Coordination | None,
    ) -> None:
        """`accounts`: a test's folder of access control. `coordination` replaces etcd."""
        elects = failover_config(loaded)
        role_file = None if elects.failover_enable else RoleFile(disk, loaded)
        standing = role_file.read() if role_file is not None else Standing(BrokerRole.SLAVE, elects.replica_id)
        self.loaded = loaded = guarded(with_standing(loaded, standing))
        config, store_config, server_config = loaded[BrokerConfig], loaded[StoreConfig], loaded[ServerConfig]
        self.network, self.disk, self.clock, self.rng = network, disk, clock, rng
        self.settings = RunTimeSettings(loaded, disk, clock, self._settings_taken)
        self.identity = Identity(
            config.broker_name or host_name(),
            config.broker_cluster_name,
            config.broker_id,
            slave=standing.is_slave,
        )
        self.role = Role(self.identity, self.settings, role_file, standing, self._role_changed)
        self.store = MessageStore(disk, store_config, clock)
        self.tables = Tables(self.settings, disk, store_config.store_path_root_dir, clock, self._topics_changed)
        self.statistics = Statistics(self.identity.cluster)
        self.long_poll = LongPoll(self.settings)
        self.overload = Overload(self.settings)
        self.locks: QueueLocks[WireQueue] = QueueLocks()
        self.clients = Clients(
            self.settings, self.tables.groups, self.tables.filters, self.long_poll, self.locks, clock
        )
        self.peers = Peers(server_config)
        self.access = AccessControl(
            lambda: self.settings.get(AccessConfig),
            accounts or RealFolder(loaded[AccessConfig].folder(loaded.file_name)),
            clock,
            self.peers,
        )
        self.pool = ConnectionPool(network, loaded[PoolConfig], hooks=[self.access.own])
        self.registration = Registration(self.identity, self.settings, self.tables.topics, self.pool)
        self.targets = SendTargets(self.identity, self.settings, self.tables.topics, self.overload, clock, rng)
        self.send_terms = CurrentTerms()
        self.dial = dial_of(network, loaded[PoolConfig], use_tls=loaded[ReplicationConfig].ha_use_tls)
        self.tls = tls_contexts(server_config)
        self.group: ReplicaGroup | None = None
        if elects.failover_enable:
            from rocketlet.broker.replica_group import ReplicaGroup

            self.group = ReplicaGroup(
                loaded, self.identity, self.store, disk, network, self.dial, self.tls, rng, coordination,
                lambda: failover_config(self.settings.loaded),
            )  # fmt: skip
            self.registration.allowed = self.group.may_register
            self.registration.epoch = self.group.current_epoch
        self.finder = MasterFinder(self.replication_config)
        self.registration.on_master = self.finder.on_master
        self.halves = HalfMessages(
            self.store, self.tables.topics, self.tables.offsets, self.identity, clock, self.filter_bits()
        )
        self.pops = Pops(
            self.store,
            self.tables.topics,
            self.tables.groups,
            self.tables.offsets,
            clock,
            self.recent_bytes,
            DeadLetters(self.store, self.tables.topics, self.filter_bits()),
            self.settle,
        )
        self.timers = Timers(self.store, clock, self.settle, self.filter_bits())
        self.waiting_pops = Waiting(
            clock, lambda topic: found.read if (found := self.tables.topics.get(topic)) else 0, self.store.watch,
            self.pops.next_due,
        )  # fmt: skip
        self.pops.changed = self.waiting_pops.ring
        self.lag = ConsumerLag(self.tables.topics, self.clients, self.tables.offsets, self.store, clock)
        self.servers: dict[str, Server] = {}
        self.state: BrokerState | None = None

    def replication_config(self) -> ReplicationConfig:
        """As it is now."""
        config: ReplicationConfig = self.settings.get(ReplicationConfig)
        return config

    def recent_bytes(self) -> int:
        """How far before the end of the log a message still counts as recent."""
        return self.disk.memory() * self.store.config.access_message_in_memory_max_ratio // 100

    def filter_bits(self) -> FilterBits:
        """What makes the bits that a message's filters get in its queue entry."""
        if self.settings.now.enable_calc_filter_bit_map and self.loaded[StoreConfig].enable_consume_queue_ext:
            return self.tables.filters.bit_map
        return no_bits

    def requests_in_progress(self) -> Mapping[str, int]:
        """Requests by family, over all ports."""
        counts: dict[str, int] = {}
        for server in self.servers.values():
            for family, count in server.statistics().in_flight.items():
                counts[family] = counts.get(family, 0) + count
        return counts

    def settle(self) -> None:
        """What follows every put: dispatch it, wake its waiters, and answer pops and acks."""
        self.store.settle()
        self.long_poll.drain()
        self.waiting_pops.drain()
        self.waiting_pops.tried()

    # ---- whether sends are taken

    def serve_sends(self, serving: bool) -> None:
        """Take sends from now on, or no longer."""
        self.targets.serving = serving
        self.renew_terms()

    def refuse_sends(self, reason: str) -> None:
        """Refuse sends with that text from now on; with an empty one, accept them."""
        self.targets.refusal = reason
        self.renew_terms()

    def renew_terms(self) -> None:
        """Have sends see the settings, the role and the state of the store as they are now."""
        self.send_terms.now = send_terms(
            self.settings.now,
            self.identity.store_host,
            waits=bool(promised(self.store.config)),
            is_open=self.targets.is_open(),
        )

    # ---- what changes

    def _settings_taken(self, loaded: Loaded) -> None:
        self.store.config = loaded[StoreConfig]
        self.finder.update()
        self.renew_terms()

    def _topics_changed(self) -> None:
        self.registration.register_soon()

    def _role_changed(self) -> None:
        self.renew_terms()
        self.registration.register_soon()


def no_bits(topic: str, properties: bytes) -> bytes:
    """The filter bits where none are kept."""
    return b""
