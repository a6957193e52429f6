"""The name server, put together: table, KV configuration, liveness and handlers around one server.

Nothing is shared with other name servers. Everything but the KV configuration and changed settings is in memory:
brokers fill a new name server within 30 s, with their next registrations.

Java: namesrv/NamesrvController.java
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

import trio

from rocketlet.access.audit import audited
from rocketlet.access.config import AccessConfig
from rocketlet.access.control import AccessControl
from rocketlet.access.explain import beyond_loopback
from rocketlet.access.folder import Folder, RealFolder
from rocketlet.common.clock import monotonic_ms, system_clock
from rocketlet.common.config_file import Loaded
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.namesrv.advertised import is_loopback
from rocketlet.namesrv.audited_changes import AuditedChanges
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.durable_file import DurableFile, Files
from rocketlet.namesrv.handlers.cluster_test import ClusterTestHandlers
from rocketlet.namesrv.handlers.configuration import ConfigurationHandlers
from rocketlet.namesrv.handlers.kv import KvHandlers
from rocketlet.namesrv.handlers.registration import RegistrationHandlers
from rocketlet.namesrv.handlers.routes import RouteHandlers
from rocketlet.namesrv.kv_config import KvConfig
from rocketlet.namesrv.liveness import Liveness
from rocketlet.namesrv.metrics import NamesrvSource
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import handler_table
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.server import Server
from rocketlet.remoting.transport import Network, split_address

log = logging.getLogger("rocketlet.namesrv.namesrv")


class NameServer:
    """`run` serves until it is cancelled. `files`, `faults` and `accounts` are for tests; by default files are on disk.

    Requires: settings of NamesrvConfig, ServerConfig, MetricsConfig and AccessConfig in `loaded`.
    """

    def __init__(
        self,
        loaded: Loaded,
        network: Network,
        *,
        files: Files | None = None,
        faults: Faults | None = None,
        accounts: Folder | None = None,
    ) -> None:
        self._config = loaded[NamesrvConfig]
        self._server_config = loaded[ServerConfig]
        self._metrics_config = loaded[MetricsConfig]
        self._network = network
        self._faults = faults
        self._table = RouteTable()
        self._liveness = Liveness(self._table)
        self._kv = KvConfig(DurableFile(self._config.kv_config_path, files))
        self._settings = RunTimeSettings(loaded, DurableFile(self._config.config_store_path, files))
        self.peers = Peers(self._server_config)
        self.access = AccessControl(
            lambda: self._settings.loaded[AccessConfig],
            accounts or RealFolder(loaded[AccessConfig].folder(loaded.file_name)),
            system_clock,
            self.peers,
        )
        self.metrics = NamesrvSource(self._table, self.access.gate.denied)

    def __repr__(self) -> str:
        return f"<NameServer {self._config.bind_address}:{self._config.listen_port} {self._table!r}>"

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports its listening address, `host:port`, as started.

        Raises ListenFailed, KvFileDamaged, SettingsError (certificates), or OSError (the KV file cannot be read).
        """
        self._kv.load()
        await self.access.open()
        async with AsyncExitStack() as stack:
            routes = RouteHandlers(self._table, self._kv, self._settings)
            table = handler_table(
                [
                    RegistrationHandlers(self._table, self._kv, monotonic_ms),
                    await self._cluster_test(routes, stack) if self._config.cluster_test else routes,
                    KvHandlers(self._kv),
                    ConfigurationHandlers(self._settings),
                ]
            )
            table = audited(table, AuditedChanges(self._kv, self._settings).by_code())
            if self._faults is not None:
                table = self._faults.wrap(table)
            server = Server(
                table,
                self._network,
                self._server_config,
                events=[self._liveness],
                admission=self.access.admission,
                peers=self.peers,
            )
            async with trio.open_nursery() as nursery:
                address: str = await nursery.start(server.serve, self._config.bind_address, self._config.listen_port)
                self.metrics.address, self.metrics.server = address, server
                await self._start_metrics(nursery)
                nursery.start_soon(self._liveness.scan)
                nursery.start_soon(self._liveness.sweep)
                nursery.start_soon(self.access.watch)
                if not self.access.enabled and not is_loopback(address):
                    log.warning("%s", beyond_loopback("name server", address))
                nursery.start_soon(self._kv.print_periodically)
                self._settings.listens_on(split_address(address)[1])
                task_status.started(address)

    async def _start_metrics(self, nursery: trio.Nursery) -> None:
        config = self._metrics_config
        if config.is_on:
            endpoint = Endpoint(self._network, [self.metrics], config.metrics_max_series)
            host = config.metrics_prom_exporter_host or self._config.bind_address
            address: str = await nursery.start(endpoint.serve, host, config.metrics_prom_exporter_port)
            log.info("metrics are at http://%s/metrics, health at /healthz and /readyz", address)

    async def _cluster_test(self, routes: RouteHandlers, stack: AsyncExitStack) -> ClusterTestHandlers:
        # Imported here: no other mode needs the client side of remoting.
        from rocketlet.namesrv.product_environment import ProductEnvironment
        from rocketlet.remoting.connection_pool import ConnectionPool

        log.info("clusterTest: routes that are missing here are asked of environment %s", self._config.product_env_name)
        pool = await stack.enter_async_context(ConnectionPool(self._network))
        return ClusterTestHandlers(routes, ProductEnvironment(self._config, self._network, pool))
