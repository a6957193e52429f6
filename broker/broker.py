"""The broker, put together: store, tables, clients, handlers and two ports; started and stopped in order.

Start: lock and recover the store, read the tables, start the background tasks, listen, register at the name servers,
and only then report ready. Stop: unregister, so that clients go elsewhere; refuse sends; answer waiting requests;
finish requests in progress; write the tables; close the store. A failing background task ends the broker, loudly.

Java: broker/BrokerController.java, BrokerStartup.java
"""

from __future__ import annotations

import logging
import random
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING

import trio

from rocketlet.access.account_requests import AccountRequests
from rocketlet.access.audit import Change, audited
from rocketlet.access.config import AccessConfig
from rocketlet.access.control import AccessControl
from rocketlet.access.explain import beyond_loopback
from rocketlet.access.folder import Folder, RealFolder
from rocketlet.broker.audited_changes import AuditedChanges
from rocketlet.broker.clients import Clients
from rocketlet.broker.config import VIP_STEP, BrokerConfig
from rocketlet.broker.consumer_lag import ConsumerLag
from rocketlet.broker.delayed_delivery import DelayedDelivery
from rocketlet.broker.detours import Detours
from rocketlet.broker.durability import BySlave, Durability, Guarantee, promised
from rocketlet.broker.followed_tables import FollowedTables
from rocketlet.broker.guarded_log import guarded
from rocketlet.broker.half_messages import HalfMessages
from rocketlet.broker.handlers.broker_state import BrokerState
from rocketlet.broker.handlers.client_relays import ClientRelays
from rocketlet.broker.handlers.configuration import Configuration
from rocketlet.broker.handlers.connections import Connections
from rocketlet.broker.handlers.consume_progress import ConsumeProgress
from rocketlet.broker.handlers.end_transaction import EndTransaction
from rocketlet.broker.handlers.group_admin import GroupAdmin
from rocketlet.broker.handlers.in_flight import InFlightAdmin
from rocketlet.broker.handlers.lock_queues import LockQueues
from rocketlet.broker.handlers.membership import Membership
from rocketlet.broker.handlers.pop_acks import PopAcks
from rocketlet.broker.handlers.pop_answers import PopAnswers
from rocketlet.broker.handlers.pop_message import PopMessage
from rocketlet.broker.handlers.pull_answers import PullAnswers
from rocketlet.broker.handlers.pull_checks import PullChecks
from rocketlet.broker.handlers.pull_message import PullMessage
from rocketlet.broker.handlers.queries import Queries
from rocketlet.broker.handlers.queue_offsets import QueueOffsets
from rocketlet.broker.handlers.recall_message import RecallMessage
from rocketlet.broker.handlers.replica_group import GroupAdmin as ReplicaGroupAdmin
from rocketlet.broker.handlers.replicas import Replicas
from rocketlet.broker.handlers.reply_message import ReplyMessage
from rocketlet.broker.handlers.request_modes import RequestModesAdmin
from rocketlet.broker.handlers.send_answers import SendAnswers
from rocketlet.broker.handlers.send_back import SendBack
from rocketlet.broker.handlers.send_message import SendMessage
from rocketlet.broker.handlers.send_targets import SendTargets
from rocketlet.broker.handlers.store_admin import StoreAdmin
from rocketlet.broker.handlers.topic_admin import TopicAdmin
from rocketlet.broker.identity import Identity
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.metrics.source import BrokerSource
from rocketlet.broker.metrics.watched import Watched
from rocketlet.broker.offset_moved import OffsetMovedEvents
from rocketlet.broker.overload import Overload
from rocketlet.broker.own_address import LOOPBACK, ip_of, own_address
from rocketlet.broker.popping.dead_letters import DeadLetters
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.popping.waiting import Waiting
from rocketlet.broker.put_again import FilterBits
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.broker.registration import Registration
from rocketlet.broker.role import MASTER_ID, Role, RoleFile, Standing, with_standing
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.broker.send_terms import CurrentTerms, send_terms
from rocketlet.broker.slow_groups import SlowGroups
from rocketlet.broker.statistics import MINUTE_EVERY, Statistics
from rocketlet.broker.tables import Tables
from rocketlet.broker.timing.timers import Timers
from rocketlet.broker.topic_routes import TopicRoutes
from rocketlet.broker.transaction_check import TransactionCheck
from rocketlet.common.clock import WallClock, monotonic_ms, system_clock
from rocketlet.common.config_file import Loaded
from rocketlet.common.moment import moment_of
from rocketlet.failover.config import failover_config
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable, HasTable, handler_table
from rocketlet.remoting.in_turns import in_turns
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.server import Server, tls_contexts
from rocketlet.remoting.transport import Network, join_address, split_address
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.dial import dial_of
from rocketlet.replication.feed import Feed
from rocketlet.replication.follow import Followed, Follower
from rocketlet.replication.slave import MasterFinder
from rocketlet.replication.slave_view import LogSpan
from rocketlet.store.config import BrokerRole, StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.errors import Closed
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica

if TYPE_CHECKING:
    from rocketlet.broker.replica_group import Coordination, ReplicaGroup

log = logging.getLogger("rocketlet.broker.broker")

_PORT_SECONDS = 5.0  # between two tries to open the port for slaves

EVERY_INTERFACE = ("0.0.0.0", "::")


class Broker:
    """`run` serves until it is cancelled. An object runs once."""

    def __init__(
        self,
        loaded: Loaded,
        network: Network,
        disk: Disk,
        *,
        clock: WallClock = system_clock,
        rng: random.Random | None = None,
        faults: Faults | None = None,
        accounts: Folder | None = None,
        coordination: Coordination | None = None,
        bound: str = "",
    ) -> None:
        """`accounts`: a test's folder of access control. `coordination` replaces etcd; `bound` is the address to listen
        on if any port will do."""
        elects = failover_config(loaded)
        role_file = None if elects.failover_enable else RoleFile(disk, loaded)
        standing = role_file.read() if role_file is not None else Standing(BrokerRole.SLAVE, elects.replica_id)
        loaded = guarded(with_standing(loaded, standing))
        config, self._store_config = loaded[BrokerConfig], loaded[StoreConfig]
        self._server_config = loaded[ServerConfig]
        self._network, self._disk, self._clock = network, disk, clock
        self._random = rng or random.Random()
        self._faults = faults
        self.settings = RunTimeSettings(loaded, disk, clock, self._settings_taken)
        self.identity = Identity(
            config.broker_name or host_name(),
            config.broker_cluster_name,
            config.broker_id,
            slave=standing.is_slave,
        )
        self.role = Role(self.identity, self.settings, role_file, standing, self._role_changed)
        self.store = MessageStore(disk, self._store_config, clock)
        self.tables = Tables(self.settings, disk, self._store_config.store_path_root_dir, clock, self._topics_changed)
        self.statistics = Statistics(self.identity.cluster)
        self.long_poll = LongPoll(self.settings)
        self.overload = Overload(self.settings)
        self.locks: QueueLocks[WireQueue] = QueueLocks()
        self.clients = Clients(
            self.settings, self.tables.groups, self.tables.filters, self.long_poll, self.locks, clock
        )
        self.peers = Peers(self._server_config)
        self.access = AccessControl(
            lambda: self.settings.get(AccessConfig),
            accounts or RealFolder(loaded[AccessConfig].folder(loaded.file_name)),
            clock,
            self.peers,
        )
        self.pool = ConnectionPool(network, loaded[PoolConfig], hooks=[self.access.own])
        self.registration = Registration(self.identity, self.settings, self.tables.topics, self.pool)
        self.targets = SendTargets(self.identity, self.settings, self.tables.topics, self.overload, clock, self._random)
        self.send_terms = CurrentTerms()
        self._dial = dial_of(network, loaded[PoolConfig], use_tls=loaded[ReplicationConfig].ha_use_tls)
        tls = tls_contexts(self._server_config)
        self.group: ReplicaGroup | None = None
        if elects.failover_enable:
            from rocketlet.broker.replica_group import ReplicaGroup

            self.group = ReplicaGroup(
                loaded, self.identity, self.store, disk, network, self._dial, tls, self._random, coordination,
                lambda: failover_config(self.settings.loaded),
            )  # fmt: skip
            self.registration.allowed = self.group.may_register
            self.registration.epoch = self.group.current_epoch
        self.restart_reason = ""
        self.bound = bound
        self._stop = trio.Event()
        # With SYNC_FLUSH slaves get only flushed bytes: no slave ever has bytes that its master can lose in a power
        # cut.
        safe = self.store.flushed if self._store_config.is_sync_flush else self.store.appended
        self.feed = Feed(
            network,
            self._replication_config,
            self.store.slices,
            self._log_span,
            self.store.confirmed or safe,
            tls_mode=self._server_config.tls_mode,
            tls=tls,
        )
        self.finder = MasterFinder(self._replication_config)
        self.registration.on_master = self.finder.on_master
        self.follower: Followed | None = None  # while a slave
        self.followed_tables: FollowedTables | None = None  # likewise
        self._replica: Replica | None = None  # from becoming a slave until becoming a master
        self._halves = HalfMessages(
            self.store, self.tables.topics, self.tables.offsets, self.identity, clock, self._filter_bits()
        )
        self._delays = self._new_delays()
        self.pops = Pops(
            self.store,
            self.tables.topics,
            self.tables.groups,
            self.tables.offsets,
            clock,
            self._recent_bytes,
            DeadLetters(self.store, self.tables.topics, self._filter_bits()),
            self.settle,
        )
        self.timers = Timers(self.store, clock, self.settle, self._filter_bits())
        self.waiting_pops = Waiting(
            clock, lambda topic: found.read if (found := self.tables.topics.get(topic)) else 0, self.store.watch,
            self.pops.next_due,
        )  # fmt: skip
        self.pops.changed = self.waiting_pops.ring
        self._lag = ConsumerLag(self.tables.topics, self.clients, self.tables.offsets, self.store, clock)
        self._account_requests = AccountRequests(
            self.access.table if self.access.enabled else None,
            lambda: (self.identity.name, self.identity.address, self.identity.cluster),
        )
        self._metrics_config = loaded[MetricsConfig]
        self._watched = Watched(
            self.identity,
            self.settings,
            self.tables,
            self.clients,
            self.statistics,
            self.store,
            self._halves,
            self.long_poll,
            self.registration,
            self.pops,
            self.waiting_pops,
            self.timers,
            self._lag,
            self.access,
            clock,
            self._metrics_config.metrics_lag_per_queue,
        )
        self._watched.group = self.group
        self.metrics = BrokerSource(self._watched)

    def _new_delays(self) -> DelayedDelivery:
        return DelayedDelivery(
            self.store, self.tables.delays, self.statistics, self._clock, self.settle, self._filter_bits()
        )

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports the address for clients as started, once it serves. Raises the errors of the store and the ports."""
        log.info("broker %s of %s starts on %s", self.identity.name, self.identity.cluster, self._root)
        await self.access.open()
        if self.group is not None:
            self.group.open()
        await self.store.open()  # may take minutes, and may be cancelled: nothing has been acknowledged yet
        stop = self._stop
        async with trio.open_nursery() as watch:
            watch.start_soon(_when_cancelled, stop)
            with trio.CancelScope(shield=True):
                await self._run(stop, task_status)
            watch.cancel_scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _run(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        self.overload.install()
        try:
            await self._serve(stop, task_status)
            # The saved progress of delays and transactions must not be ahead of the disk: so the log is closed first.
            await self.store.flush()
            await self.tables.save_all()
        finally:
            self.overload.remove()
            await self.store.close()
        log.info("broker %s stopped", self.identity.name)

    async def _serve(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        self.tables.load(self.identity.name)
        async with self.pool, trio.open_nursery() as background:
            await self._start_background(background)
            async with trio.open_nursery() as ports:
                if not stop.is_set():
                    await self._start_ports(ports, background)
                    await self._start_metrics(background)
                    background.start_soon(self.registration.run)
                    await _wait_unless_stopped(stop, self.registration.wait_registered)
                    if not stop.is_set():
                        self._log_ready()
                        task_status.started(self.identity.address)
                    await stop.wait()
                    await self._withdraw()
                ports.cancel_scope.cancel()
            log.info("all connections are closed")
            background.cancel_scope.cancel()

    # -- start

    async def _start_background(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.store.run)
        nursery.start_soon(self.tables.run)
        nursery.start_soon(self.long_poll.run)
        nursery.start_soon(self.waiting_pops.run)
        nursery.start_soon(self.clients.drop_silent)
        nursery.start_soon(self.clients.notify)
        nursery.start_soon(self._tick)
        nursery.start_soon(self.access.watch)
        slow_groups = SlowGroups(self.settings, self.tables.groups, self.tables.offsets, self.store)
        nursery.start_soon(slow_groups.run)

    # -- roles

    async def _as_master(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the master's tasks, until cancelled."""
        was_slave = self._replica is not None
        if self._replica is not None:
            self.store.lead(self._replica)
            self._replica = None
            self.tables.fit(self.store)
            if self.store.log.end:  # otherwise nobody can have consumed anything
                self.locks.succeed(monotonic_ms())
        self._halves.recover()
        self._delays = self._new_delays()
        check = TransactionCheck(
            self._halves,
            self.clients.producers,
            self.identity,
            self.settings,
            lambda: self.store.config.file_reserved_time,
            self._clock,
            self._random,
            self.settle,
        )
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._delays.run)
                await nursery.start(self.pops.run)
                await nursery.start(self.timers.run)
                nursery.start_soon(check.run)
                try:
                    await self._serve_slaves(nursery)
                except ListenFailed as taken:
                    if not was_slave:
                        raise
                    nursery.start_soon(self._serve_slaves_once_free, nursery, taken)
                self._serve_sends(True)
                task_status.started()
        finally:
            self.waiting_pops.answer_all()  # from a slave's answer

    async def _serve_slaves(self, nursery: trio.Nursery) -> None:
        """Open the port for slaves. Raises ListenFailed."""
        bound: str = await nursery.start(self.feed.serve, self.settings.now.bind_address, self._ha_port())
        self._settle_ha_address(split_address(bound)[1])

    async def _serve_slaves_once_free(self, nursery: trio.Nursery, error: ListenFailed) -> None:
        """A broker that takes over sends has to go on where it could not have started."""
        log.error("%s: no slave can follow this master until the port is free (haListenPort)", error)
        while True:
            await trio.sleep(_PORT_SECONDS)
            try:
                return await self._serve_slaves(nursery)
            except ListenFailed:
                pass

    async def _as_slave(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the slave's tasks, until cancelled."""
        if self._replica is None:
            self._replica = self.store.follow(self._filter_bits(), self.settle)
        self._settle_ha_address(self._ha_port())
        by_settings = None
        if self.group is not None:
            assert self.group.driver is not None
            self.follower = self.group.driver.follower
        else:
            self.finder.update()
            self.follower = by_settings = Follower(
                self._dial,
                self.pool,
                self._replication_config,
                self.store,
                self._replica,
                self.finder.place,
                self.registration.register_soon,  # a name server's answer gives the master's address
            )
        self.followed_tables = FollowedTables(
            self.tables, self.store, self.pool, self.follower, self._clock, self.locks
        )
        try:
            async with trio.open_nursery() as nursery:
                if by_settings is not None:
                    nursery.start_soon(by_settings.run)
                nursery.start_soon(self.followed_tables.run)
                self._serve_sends(True)
                task_status.started()
        finally:
            self.follower = self.followed_tables = None

    async def lead(self) -> None:
        """Become the master: the replicas have elected this one."""
        await self.role.become(Standing(BrokerRole.SYNC_MASTER, MASTER_ID))

    def refuse_sends(self, reason: str) -> None:
        """Refuse sends with that text from now on; with an empty one, accept them."""
        self.targets.refusal = reason
        self._renew_terms()

    def restart(self, reason: str) -> None:
        """Stop in order, to start again from the files."""
        self.restart_reason = self.restart_reason or reason
        if self.store.confirmed is not None:
            self.store.confirmed.fail(Closed(f"not confirmed: {reason}"))
        self._stop.set()

    def _group_table(self) -> dict[str, str]:
        return self.group.table() if self.group is not None else {}

    def _role_changed(self) -> None:
        self._renew_terms()
        self.registration.register_soon()

    def _ha_port(self) -> int:
        """The port for slaves; 0 for a free one."""
        port = self._replication_config().ha_listen_port
        return port or (self.settings.now.listen_port and self.settings.now.listen_port + 1)

    def _settle_ha_address(self, port: int) -> None:
        host = self.settings.now.broker_ip2 or split_address(self.identity.address)[0]
        self.identity.ha_address = join_address(host, port)

    def _replication_config(self) -> ReplicationConfig:
        config: ReplicationConfig = self.settings.get(ReplicationConfig)
        return config

    def _log_span(self) -> LogSpan:
        log_ = self.store.log
        last = log_.files.last
        end = log_.end if self.store.confirmed is None else self.store.confirmed.value
        return LogSpan(log_.begin, end, last.begin if last is not None else 0)

    async def _start_ports(self, ports: trio.Nursery, background: trio.Nursery) -> None:
        """Listen, determine our addresses, and only then accept sends."""
        config = self.settings.now
        replicated: Guarantee = BySlave(self.feed, self._replication_config, background)
        if self.group is not None:
            replicated = self.group.guarantee(self._replication_config, background)
        durability = Durability(
            self.store, self.tables.topics_file, replicated, background, strict=self.group is not None
        )
        answers = SendAnswers(
            self.identity,
            self.settings,
            self.send_terms,
            durability,
            self.tables.topics_file,
            self.registration.wait_registered_briefly,
            background,
            self.statistics.put_times,
        )

        pop_answers = PopAnswers(self.pops, durability)
        self.waiting_pops.tried = pop_answers.finish
        put, times = self.statistics.put, self.statistics.put_times

        def after_turn() -> None:
            self.settle()
            times.turn(put.calls - answers.waits, self.overload.pass_ms())
            answers.after_turn()

        table = handler_table([*self._handlers(answers, pop_answers, durability, background), self._account_requests])
        table = self.overload.wrap(audited(table, self._audited_changes()))
        if self.group is not None:
            table = self.group.wrap(table)
        if self._faults is not None:
            table = self._faults.wrap(table)
        main = self._server(table, pop_answers.write, after_turn)
        previous_port = split_address(self.bound)[1] if self.bound else 0
        self.bound = bound = await ports.start(main.serve, config.bind_address, config.listen_port or previous_port)
        self._settle_identity(bound)
        self._watched.servers["main"] = main
        if config.listen_port:
            vip = self._server(_without_pulls(table), pop_answers.write, after_turn)
            await ports.start(vip.serve, config.bind_address, config.listen_port - VIP_STEP)
            self._watched.servers["vip"] = vip
        if self.group is not None:
            self._replica = self.store.follow(self._filter_bits(), self.settle)
            await self.group.start(background, self._replica, self)
        await background.start(self.role.run, self._as_master, self._as_slave)

    async def _start_metrics(self, nursery: trio.Nursery) -> None:
        config = self._metrics_config
        if config.is_on:
            endpoint = Endpoint(self._network, [self.metrics], config.metrics_max_series)
            host = config.metrics_prom_exporter_host or self.settings.now.bind_address
            address: str = await nursery.start(endpoint.serve, host, config.metrics_prom_exporter_port)
            log.info("metrics are at http://%s/metrics, health at /healthz and /readyz", address)

    def _server(
        self, table: HandlerTable, before_answers: Callable[[], None], after_turn: Callable[[], None]
    ) -> Server:
        return Server(
            table,
            self._network,
            self._server_config,
            events=[self.clients, self.waiting_pops],
            before_answers=before_answers,
            after_turn=after_turn,
            admit=self.access.admit,
            peers=self.peers,
        )

    def _audited_changes(self) -> Mapping[int, Change]:
        changes = AuditedChanges(self.settings, self.tables.topics, self.tables.groups)
        return {**changes.by_code(), **self._account_requests.changes()}

    def _settle_identity(self, bound: str) -> None:
        config = self.settings.now
        host, port = split_address(bound)
        loopback = ""
        if config.broker_ip1:
            advertised = config.broker_ip1
            if config.advertises_unreachable_address:
                log.warning("clients are told %s, but bindAddress=%s admits only this host", advertised, host)
        elif config.bind_address in EVERY_INTERFACE:
            advertised, loopback = own_address(config.namesrv_addr), join_address("127.0.0.1", port)
        else:
            advertised = host
        try:
            ip = ip_of(advertised)
        except OSError as error:
            ip = LOOPBACK
            log.warning("brokerIP1 is %s, which is no address known here (%s): records bear %s", advertised, error, ip)
        self.identity.settle(
            join_address(advertised, port),
            loopback,
            join_address(ip, port),
        )

    def _log_ready(self) -> None:
        log.info("broker %s is ready, clients are told %s", self.identity.name, self.identity.address)
        if not self.access.enabled and not self.settings.now.loopback_only:
            log.warning("%s", beyond_loopback("broker", self.settings.now.bind_address))
        if not self.settings.now.namesrv_addr:
            log.warning("no name server is set (-n host:port): clients find this broker only by its address")

    def _handlers(
        self, answers: SendAnswers, pop_answers: PopAnswers, durability: Durability, nursery: trio.Nursery
    ) -> list[HasTable]:
        identity, settings, store, tables = self.identity, self.settings, self.store, self.tables
        topics, groups, offsets = tables.topics, tables.groups, tables.offsets
        clients, statistics, clock = self.clients, self.statistics, self._clock
        bits = self._filter_bits()
        levels = store.config.delay_level_count
        detours = Detours(identity, settings, topics, groups, levels, clock)
        events = OffsetMovedEvents(identity, store, clock, statistics.put)
        state = BrokerState(
            settings, store, statistics, self._delay_progress, self._disk.usage, clock, self._group_table
        )
        self._watched.state = state
        checks = PullChecks(identity, settings, self.overload, tables, clients)
        routes = TopicRoutes(identity, settings, topics, self.pool)
        return [
            SendMessage(self.targets, detours, answers, store, statistics, None if bits is _no_bits else bits),
            SendBack(identity, settings, topics, groups, store, durability, statistics, self._random, bits),
            ReplyMessage(identity, settings, self.targets, clients.producers, store, clock, self.settle, bits),
            EndTransaction(identity, self._halves, durability, statistics),
            PullMessage(
                identity,
                checks,
                PullAnswers(identity, settings, store, statistics, self._recent_bytes, events, nursery),
                offsets,
                store,
                self.long_poll,
            ),
            PopMessage(checks, self.pops, self.waiting_pops, store, statistics, clock, nursery, pop_answers),
            PopAcks(topics, self.pops, pop_answers),
            InFlightAdmin(self.pops, self.waiting_pops, self.timers),
            RecallMessage(identity, settings, self.timers, durability, clock),
            RequestModesAdmin(identity, topics, clients, tables.modes, tables.modes_file, routes),
            Queries(store),
            QueueOffsets(offsets, tables.offsets_file, store, self._recent_bytes, nursery),
            Membership(settings, topics, groups, clients, self.registration.wait_registered_briefly),
            LockQueues(self.locks, monotonic_ms, self.tables.changes.notify),
            TopicAdmin(identity, tables, self.registration, store, statistics),
            GroupAdmin(identity, tables, statistics),
            Configuration(settings, topics, self.registration),
            Connections(clients),
            ClientRelays(identity, clients, topics, offsets, store),
            ConsumeProgress(
                identity, topics, groups, clients, self._lag, offsets, tables.offsets_file, store, statistics, clock
            ),
            state,
            StoreAdmin(identity, topics, clients, tables.filters, offsets, store),
            ReplicaGroupAdmin(lambda: self.group.driver if self.group is not None else None),
            Replicas(
                identity,
                self.role,
                self,
                tables,
                store,
                self.feed,
                self.pool,
                clock,
                self._serve_sends,
                self.registration.wait_registered_briefly,
                nursery,
            ),
        ]

    def _serve_sends(self, serving: bool) -> None:
        self.targets.serving = serving
        self.metrics.serving = serving
        self._renew_terms()

    def _renew_terms(self) -> None:
        self.send_terms.now = send_terms(
            self.settings.now,
            self.identity.store_host,
            waits=bool(promised(self.store.config)),
            is_open=self.targets.is_open(),
        )

    # -- stop

    async def _withdraw(self) -> None:
        log.info("broker %s stops: it unregisters and takes no more sends", self.identity.name)
        if not self.restart_reason:
            await self.registration.unregister()
        self._serve_sends(False)
        self.long_poll.answer_all()
        self.waiting_pops.answer_all()

    # -- meanwhile

    def settle(self) -> None:
        """What follows every put: dispatch it, wake its waiters, and answer pops and acks."""
        self.store.settle()
        self.long_poll.drain()
        self.waiting_pops.drain()
        self.waiting_pops.tried()

    async def _tick(self) -> None:
        """Every ten seconds: sample the counters, and run other periodic work."""
        while True:
            now = self._clock()
            await in_turns(self.statistics.flows(), methodcaller("remember", now))
            self.statistics.tick(now, moment_of(now).toordinal())
            self.locks.expire(monotonic_ms())
            self._renew_terms()
            await trio.sleep(MINUTE_EVERY / 1000)

    def _settings_taken(self, loaded: Loaded) -> None:
        self.store.config = loaded[StoreConfig]
        self.finder.update()
        self._renew_terms()

    def _topics_changed(self) -> None:
        self.registration.register_soon()

    def _recent_bytes(self) -> int:
        """How far before the end of the log a message still counts as recent."""
        return self._disk.memory() * self.store.config.access_message_in_memory_max_ratio // 100

    def _delay_progress(self) -> Iterator[tuple[int, int, int]]:
        """Progress of the levels that have or had messages."""
        return (row for row in self._delays.progress() if row[1] or row[2])

    def _filter_bits(self) -> FilterBits:
        if self.settings.now.enable_calc_filter_bit_map and self._store_config.enable_consume_queue_ext:
            return self.tables.filters.bit_map
        return _no_bits

    @property
    def _root(self) -> str:
        return self._store_config.store_path_root_dir


def _without_pulls(table: HandlerTable) -> HandlerTable:
    """The VIP port's handlers: pulls wait, and would hold up sends on that port."""
    return {code: handler for code, handler in table.items() if handler.family != "pull"}


async def _when_cancelled(stop: trio.Event) -> None:
    """Turn a cancellation into an event, so that the broker stops in order."""
    try:
        await trio.sleep_forever()
    finally:
        stop.set()


async def _wait_unless_stopped(stop: trio.Event, wait: Callable[[], Awaitable[None]]) -> None:
    """Wait, but not beyond the stop."""
    async with trio.open_nursery() as nursery:

        async def end_with_it() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(end_with_it)
        await wait()
        nursery.cancel_scope.cancel()


def _no_bits(topic: str, properties: bytes) -> bytes:
    return b""


def host_name() -> str:
    """The default name of a broker: the host's, with characters replaced that topic names may not have."""
    return re.sub(r"[^%|a-zA-Z0-9_-]", "-", socket.gethostname()) or "broker"
