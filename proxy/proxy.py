"""The gRPC endpoint, put together: the port for clients of RocketMQ 5, in front of any brokers that speak remoting.

    methods   handlers/        what each RPC does
    service/                   what handlers share: brokers, clients, transactions, conversions
    server, connection, call   gRPC on trio
    http2/, grpc_wire, wire/   bytes

Java: proxy/ProxyStartup.java
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from random import Random

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.access.control import AccessControl
from rocketlet.access.folder import Folder, RealFolder
from rocketlet.common.clock import WallClock, system_clock
from rocketlet.proxy.admission import Admission
from rocketlet.proxy.call import Method
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.handlers.membership import Membership
from rocketlet.proxy.handlers.receive import Receives
from rocketlet.proxy.handlers.routes import Routes
from rocketlet.proxy.handlers.send import Sends
from rocketlet.proxy.metrics import CallCounts, ProxyMetrics
from rocketlet.proxy.server import GrpcServer
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.service.outgoing import MAX_HEAD_BYTES, check_bytes
from rocketlet.proxy.service.renewals import Renewals
from rocketlet.proxy.service.transactions import Transactions
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.proxy.wire.schema import PACKAGE
from rocketlet.remoting.config import PoolConfig, ServerConfig, TlsMode
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.server import tls_contexts
from rocketlet.remoting.shelter import shelter
from rocketlet.remoting.transport import Network, TcpNetwork

log = logging.getLogger("rocketlet.proxy")

SERVICE = f"/{PACKAGE}.MessagingService/"


class Proxy:
    """One endpoint; an object runs once. Only the TLS settings of `servers` are used.

    `accounts` is the folder of the account files, unless `access` names it.

    Raises SettingsError if certificates cannot be loaded.
    """

    def __init__(
        self,
        config: ProxyConfig,
        servers: ServerConfig,
        pool: PoolConfig,
        network: Network | None = None,
        *,
        access: AccessConfig | None = None,
        accounts: Folder | None = None,
        clock: WallClock = system_clock,
        random: Random | None = None,
    ) -> None:
        self._config = config
        self._network = network or TcpNetwork()
        random = random or Random()
        self.clients = Clients(random)
        self.transactions = Transactions(self.clients, f"rocketlet-proxy@{os.getpid()}@{random.getrandbits(32):x}")
        access_config = access or AccessConfig()
        self.access = AccessControl(lambda: access_config, accounts or RealFolder(access_config.folder("")), clock)
        self._pool = ConnectionPool(
            self._network, pool, self.transactions.table(), hooks=[self.access.own], events=[self.transactions]
        )
        self.brokers = self.transactions.brokers = Brokers(
            self._pool, config.name_servers, random, lambda: self.access.own.is_signing
        )
        self.renewals = Renewals(config, self.brokers, clock)
        self._routes = Routes(config, self.brokers)
        self._sends = Sends(config, self.brokers, self.transactions, clock)
        self._receives = Receives(config, self.brokers, self.renewals, clock)
        self._membership = Membership(config, self.brokers, self.clients, self._receives.end_polls)
        self.server = GrpcServer(
            self._network,
            self._methods(),
            calls := CallCounts(),
            admit=Admission(self.access.gate, clock).check if self.access.enabled else None,
            tls=tls_contexts(servers),
            plain=servers.tls_mode is not TlsMode.ENFORCING,
            most_connections=config.grpc_max_connections,
            most_held=config.grpc_max_held_bytes,
            drain_seconds=config.grpc_shutdown_time_seconds,
        )
        self.metrics = ProxyMetrics(calls, self.server, self.brokers, self.clients, self.renewals, self.transactions)

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Starts with the address, `host:port`. Raises ListenFailed, SettingsError."""
        config = self._config
        await self.access.open()
        async with shelter() as sheltered:  # calls in progress still need brokers and connections
            await sheltered.start(self._run_pool)
            await sheltered.start(self.brokers.run)
            for background in (self.transactions.run, self._receives.run, self.access.watch):
                sheltered.start_soon(background)
            address: str = await sheltered.start(self.server.serve, config.bind_address, config.grpc_server_port)
            log.info("gRPC is served at %s", address)
            try:
                task_status.started(address)
                await trio.sleep_forever()
            finally:
                self._receives.end_all_polls()
                with trio.CancelScope(shield=True):
                    await self.server.drain()

    async def _run_pool(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self._pool:
            task_status.started()
            await trio.sleep_forever()

    def _methods(self) -> Mapping[bytes, Method]:
        members, routes, sends, receives = self._membership, self._routes, self._sends, self._receives
        largest_send = self._config.max_message_size + MAX_HEAD_BYTES + (1 << 20)
        methods = [
            Method("QueryRoute", m.QueryRouteRequest, m.QueryRouteResponse, routes.route),
            Method("QueryAssignment", m.QueryAssignmentRequest, m.QueryAssignmentResponse, routes.assignment),
            Method("Heartbeat", m.HeartbeatRequest, m.HeartbeatResponse, members.heartbeat),
            Method("Telemetry", m.TelemetryCommand, m.TelemetryCommand, members.telemetry, is_stream=True),
            Method(
                "NotifyClientTermination",
                m.NotifyClientTerminationRequest,
                m.NotifyClientTerminationResponse,
                members.termination,
            ),
            Method(
                "SendMessage",
                m.SendMessageRequest,
                m.SendMessageResponse,
                sends.send,
                largest=largest_send,
                check=check_bytes,
            ),
            Method("RecallMessage", m.RecallMessageRequest, m.RecallMessageResponse, sends.recall),
            Method("EndTransaction", m.EndTransactionRequest, m.EndTransactionResponse, self._end_transaction),
            Method("ReceiveMessage", m.ReceiveMessageRequest, m.ReceiveMessageResponse, receives.receive),
            Method("AckMessage", m.AckMessageRequest, m.AckMessageResponse, receives.ack),
            Method(
                "ChangeInvisibleDuration",
                m.ChangeInvisibleDurationRequest,
                m.ChangeInvisibleDurationResponse,
                receives.change,
            ),
            Method(
                "ForwardMessageToDeadLetterQueue",
                m.ForwardMessageToDeadLetterQueueRequest,
                m.ForwardMessageToDeadLetterQueueResponse,
                receives.forward,
            ),
        ]
        return {f"{SERVICE}{method.name}".encode(): method for method in methods}

    async def _end_transaction(self, call: object, request: m.EndTransactionRequest) -> m.EndTransactionResponse:
        await self.transactions.end(request)
        return m.EndTransactionResponse(status=m.Status(code=Code.OK, message="OK"))
