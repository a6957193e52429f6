"""What a broker does only as a master, and what only as a slave. `role.py` runs one of the two.

Java: broker/BrokerController.java (changeSpecialServiceStatus), broker/slave/SlaveSynchronize.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import trio

from rocketlet.broker.delayed_delivery import DelayedDelivery
from rocketlet.broker.followed_tables import FollowedTables
from rocketlet.broker.parts import Parts
from rocketlet.broker.transaction_check import TransactionCheck
from rocketlet.common.clock import monotonic_ms
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.transport import join_address, split_address
from rocketlet.replication.feed import Feed
from rocketlet.replication.follow import Followed, Follower
from rocketlet.replication.slave_view import LogSpan
from rocketlet.store.replica import Replica

log = logging.getLogger("rocketlet.broker.duties")

_PORT_SECONDS = 5.0  # between two tries to open the port for slaves


class Duties:
    """See the module. `feed` sends the log to slaves; `follower` and `followed_tables` are there while a slave."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        store = parts.store
        # With SYNC_FLUSH slaves get only flushed bytes: no slave ever has bytes that its master can lose in a power
        # cut.
        safe = store.flushed if store.config.is_sync_flush else store.appended
        self.feed = Feed(
            parts.network,
            parts.replication_config,
            store.slices,
            self._log_span,
            store.confirmed or safe,
            tls_mode=parts.loaded[ServerConfig].tls_mode,
            tls=parts.tls,
        )
        self.follower: Followed | None = None
        self.followed_tables: FollowedTables | None = None
        self._replica: Replica | None = None  # from becoming a slave until becoming a master
        self._delays = self._new_delays()

    def replica(self) -> Replica:
        """The store's side of following; from now on it takes only a master's bytes."""
        if self._replica is None:
            self._replica = self._parts.store.follow(self._parts.filter_bits(), self._parts.settle)
        return self._replica

    def delay_progress(self) -> Iterator[tuple[int, int, int]]:
        """Progress of the delay levels that have or had messages."""
        return (row for row in self._delays.progress() if row[1] or row[2])

    async def as_master(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the master's tasks, until cancelled."""
        parts = self._parts
        was_slave = self._replica is not None
        if self._replica is not None:
            parts.store.lead(self._replica)
            self._replica = None
            parts.tables.fit(parts.store)
            if parts.store.log.end:  # otherwise nobody can have consumed anything
                parts.locks.succeed(monotonic_ms())
        await parts.tables.lower_tombstones(parts.store)
        parts.halves.recover()
        self._delays = self._new_delays()
        check = TransactionCheck(
            parts.halves,
            parts.clients.producers,
            parts.identity,
            parts.settings,
            lambda: parts.store.config.file_reserved_time,
            parts.clock,
            parts.rng,
            parts.settle,
        )
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._delays.run)
                await nursery.start(parts.pops.run)
                await nursery.start(parts.timers.run)
                nursery.start_soon(check.run)
                try:
                    await self._serve_slaves(nursery)
                except ListenFailed as taken:
                    if not was_slave:
                        raise
                    nursery.start_soon(self._serve_slaves_once_free, nursery, taken)
                parts.serve_sends(True)
                task_status.started()
        finally:
            parts.waiting_pops.answer_all()  # from a slave's answer

    async def _serve_slaves(self, nursery: trio.Nursery) -> None:
        """Open the port for slaves. Raises ListenFailed."""
        bound: str = await nursery.start(self.feed.serve, self._parts.settings.now.bind_address, self._ha_port())
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

    async def as_slave(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the slave's tasks, until cancelled."""
        parts, replica = self._parts, self.replica()
        self._settle_ha_address(self._ha_port())
        by_settings = None
        if parts.group is not None:
            assert parts.group.driver is not None
            self.follower = parts.group.driver.follower
        else:
            parts.finder.update()
            self.follower = by_settings = Follower(
                parts.dial,
                parts.pool,
                parts.replication_config,
                parts.store,
                replica,
                parts.finder.place,
                parts.registration.register_soon,  # a name server's answer gives the master's address
            )
        self.followed_tables = FollowedTables(
            parts.tables, parts.store, parts.pool, self.follower, parts.clock, parts.locks
        )
        try:
            async with trio.open_nursery() as nursery:
                if by_settings is not None:
                    nursery.start_soon(by_settings.run)
                nursery.start_soon(self.followed_tables.run)
                parts.serve_sends(True)
                task_status.started()
        finally:
            self.follower = self.followed_tables = None

    def _new_delays(self) -> DelayedDelivery:
        parts = self._parts
        return DelayedDelivery(
            parts.store, parts.tables.delays, parts.statistics, parts.clock, parts.settle, parts.filter_bits()
        )

    def _ha_port(self) -> int:
        """The port for slaves; 0 for a free one."""
        port = self._parts.replication_config().ha_listen_port
        listen_port = self._parts.settings.now.listen_port
        return port or (listen_port and listen_port + 1)

    def _settle_ha_address(self, port: int) -> None:
        identity = self._parts.identity
        host = self._parts.settings.now.broker_ip2 or split_address(identity.address)[0]
        identity.ha_address = join_address(host, port)

    def _log_span(self) -> LogSpan:
        store = self._parts.store
        last = store.log.files.last
        end = store.log.end if store.confirmed is None else store.confirmed.value
        return LogSpan(store.log.begin, end, last.begin if last is not None else 0)
