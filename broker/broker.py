"""The broker: its parts, duties and requests with two ports; started and stopped in order.

Start: lock and recover the store, read the tables, start the background tasks, listen, register at the name servers,
and only then report ready. Stop: unregister, so that clients go elsewhere; refuse sends; answer waiting requests;
finish requests in progress; write the tables; close the store. A failing background task ends the broker, loudly.

Java: broker/BrokerController.java, BrokerStartup.java
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from operator import methodcaller
from typing import TYPE_CHECKING

import trio

from rocketlet.access.explain import beyond_loopback
from rocketlet.access.folder import Folder
from rocketlet.broker.config import VIP_STEP
from rocketlet.broker.duties import Duties
from rocketlet.broker.metrics.source import BrokerSource
from rocketlet.broker.own_address import settle_addresses
from rocketlet.broker.parts import Parts
from rocketlet.broker.requests import Requests
from rocketlet.broker.role import MASTER_ID, Standing
from rocketlet.broker.slow_groups import SlowGroups
from rocketlet.broker.statistics import MINUTE_EVERY
from rocketlet.common.clock import WallClock, monotonic_ms, system_clock
from rocketlet.common.config_file import Loaded
from rocketlet.common.moment import moment_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable
from rocketlet.remoting.in_turns import in_turns
from rocketlet.remoting.server import Server
from rocketlet.remoting.transport import Network, split_address
from rocketlet.store.config import BrokerRole
from rocketlet.store.disk import Disk
from rocketlet.store.errors import Closed

if TYPE_CHECKING:
    from rocketlet.broker.replica_group import Coordination

log = logging.getLogger("rocketlet.broker.broker")


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
        self.parts = parts = Parts(loaded, network, disk, clock, rng or random.Random(), accounts, coordination)
        self.duties = Duties(parts)
        self.metrics = BrokerSource(parts)
        self.settings, self.identity = parts.settings, parts.identity
        self.store, self.tables, self.clients = parts.store, parts.tables, parts.clients
        self.statistics, self.registration = parts.statistics, parts.registration
        self.restart_reason = ""
        self.bound = bound
        self._faults = faults
        self._stop = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports the address for clients as started, once it serves. Raises the errors of the store and the ports."""
        parts, identity = self.parts, self.identity
        log.info("broker %s of %s starts on %s", identity.name, identity.cluster, self.store.config.store_path_root_dir)
        await parts.access.open()
        if parts.group is not None:
            parts.group.open()
        await self.store.open()  # may take minutes, and may be cancelled: nothing has been acknowledged yet
        stop = self._stop
        async with trio.open_nursery() as watch:
            watch.start_soon(_when_cancelled, stop)
            with trio.CancelScope(shield=True):
                await self._run(stop, task_status)
            watch.cancel_scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _run(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        self.parts.overload.install()
        try:
            await self._serve(stop, task_status)
            # The saved progress of delays and transactions must not be ahead of the disk: so the log is closed first.
            await self.store.flush()
            await self.tables.save_all()
        finally:
            self.parts.overload.remove()
            await self.store.close()
        log.info("broker %s stopped", self.identity.name)

    async def _serve(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        self.tables.load(self.identity.name)
        async with self.parts.pool, trio.open_nursery() as background:
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
        parts = self.parts
        await nursery.start(self.store.run)
        nursery.start_soon(self.tables.run)
        nursery.start_soon(parts.long_poll.run)
        nursery.start_soon(parts.waiting_pops.run)
        nursery.start_soon(self.clients.drop_silent)
        nursery.start_soon(self.clients.notify)
        nursery.start_soon(self.clients.compile_filters)
        nursery.start_soon(self._tick)
        nursery.start_soon(parts.access.watch)
        slow_groups = SlowGroups(self.settings, self.tables.groups, self.tables.offsets, self.store)
        nursery.start_soon(slow_groups.run)

    async def _start_ports(self, ports: trio.Nursery, background: trio.Nursery) -> None:
        """Listen, determine our addresses, and only then accept sends."""
        parts, config = self.parts, self.settings.now
        requests = Requests(parts, self.duties, self._faults, background)
        main = self._server(requests, requests.table)
        previous_port = split_address(self.bound)[1] if self.bound else 0
        self.bound = bound = await ports.start(main.serve, config.bind_address, config.listen_port or previous_port)
        settle_addresses(self.identity, config, bound)
        parts.servers["main"] = main
        if config.listen_port:
            vip = self._server(requests, _without_pulls(requests.table))
            await ports.start(vip.serve, config.bind_address, config.listen_port - VIP_STEP)
            parts.servers["vip"] = vip
        if parts.group is not None:
            await parts.group.start(background, self.duties.replica(), self)
        await background.start(parts.role.run, self.duties.as_master, self.duties.as_slave)

    def _server(self, requests: Requests, table: HandlerTable) -> Server:
        parts = self.parts
        return Server(
            table,
            parts.network,
            parts.loaded[ServerConfig],
            events=[self.clients, parts.waiting_pops],
            before_answers=requests.before_answers,
            after_turn=requests.after_turn,
            admission=parts.access.admission,
            peers=parts.peers,
        )

    async def _start_metrics(self, nursery: trio.Nursery) -> None:
        config = self.parts.loaded[MetricsConfig]
        if config.is_on:
            endpoint = Endpoint(self.parts.network, [self.metrics], config.metrics_max_series)
            host = config.metrics_prom_exporter_host or self.settings.now.bind_address
            address: str = await nursery.start(endpoint.serve, host, config.metrics_prom_exporter_port)
            log.info("metrics are at http://%s/metrics, health at /healthz and /readyz", address)

    def _log_ready(self) -> None:
        log.info("broker %s is ready, clients are told %s", self.identity.name, self.identity.address)
        if not self.parts.access.enabled and not self.settings.now.loopback_only:
            log.warning("%s", beyond_loopback("broker", self.settings.now.bind_address))
        if not self.settings.now.namesrv_addr:
            log.warning("no name server is set (-n host:port): clients find this broker only by its address")

    # -- stop

    async def _withdraw(self) -> None:
        log.info("broker %s stops: it unregisters and takes no more sends", self.identity.name)
        if not self.restart_reason:
            await self.registration.unregister()
        self.parts.serve_sends(False)
        self.parts.long_poll.answer_all()
        self.parts.waiting_pops.answer_all()

    # -- what electing replicas ask for

    def settle(self) -> None:
        """Dispatch what may be dispatched, and wake its waiters."""
        self.parts.settle()

    async def lead(self) -> None:
        """Become the master: the replicas have elected this one."""
        await self.parts.role.become(Standing(BrokerRole.SYNC_MASTER, MASTER_ID))

    def refuse_sends(self, reason: str) -> None:
        """Refuse sends with that text from now on; with an empty one, accept them."""
        self.parts.refuse_sends(reason)

    def restart(self, reason: str) -> None:
        """Stop in order, to start again from the files."""
        self.restart_reason = self.restart_reason or reason
        if self.store.confirmed is not None:
            self.store.confirmed.fail(Closed(f"not confirmed: {reason}"))
        self._stop.set()

    # -- meanwhile

    async def _tick(self) -> None:
        """Every ten seconds: sample the counters, and run other periodic work."""
        while True:
            now = monotonic_ms()  # by the wall clock, set back by a day, no rate would change for a day
            await in_turns(self.statistics.flows(), methodcaller("remember", now))
            self.statistics.tick(now, moment_of(self.parts.clock()).toordinal())
            self.parts.locks.expire(now)
            self.parts.renew_terms()
            await trio.sleep(MINUTE_EVERY / 1000)


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
