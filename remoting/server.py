"""A server: accepts connections, detects TLS, closes idle connections, and drains all when it stops.

Requests are handled in `dispatch.py`. `serve` may run several times at once, for several ports of one
server: a broker listens on its port and on the VIP port two below it.

At a stop (cancellation of `serve`, at any moment) the port is closed first. Then nothing more is read; requests in
progress are answered, for at most serverDrainSeconds; then the connections are closed.

A failing subscriber of connection events is treated like a failing handler: the error is logged with its traceback, and
the other subscribers and connections continue. A peer caused it, so ending the process would give every peer that
power.

Java: remoting/netty/NettyRemotingServer.java
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from rocketlet.remoting.accepting import accepted
from rocketlet.remoting.config import ServerConfig, TlsMode
from rocketlet.remoting.connection import Connection, Limits
from rocketlet.remoting.dispatch import Admission, Dispatch
from rocketlet.remoting.events import ConnectionEvents, notify
from rocketlet.remoting.family_limits import DEFAULT_LIMITS, FamilyLimit
from rocketlet.remoting.first_byte import detect_tls
from rocketlet.remoting.handler import HandlerTable, ServerHook
from rocketlet.remoting.idle import close_idle
from rocketlet.remoting.own_context import OwnContext
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.shelter import shelter
from rocketlet.remoting.transport import ByteStream, Listener, Network, host_of

if TYPE_CHECKING:
    from rocketlet.remoting.tls import TlsContexts

log = logging.getLogger("rocketlet.remoting.server")


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """A snapshot: open connections, and requests in progress by family."""

    connections: int
    in_flight: Mapping[str, int]


class Server:
    """See the module. `before_answers` and `after_turn` are called once per turn, before and after its answers are
    written."""

    def __init__(
        self,
        handlers: HandlerTable,
        network: Network,
        config: ServerConfig | None = None,
        *,
        hooks: Sequence[ServerHook] = (),
        events: Sequence[ConnectionEvents] = (),
        before_answers: Callable[[], None] | None = None,
        after_turn: Callable[[], None] | None = None,
        limits: Mapping[str, FamilyLimit] = DEFAULT_LIMITS,
        admission: Admission | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`peers` is shared by the servers of a process. Raises SettingsError if certificates cannot be loaded."""
        self._config = config = config or ServerConfig()
        self._network = network
        self._events = tuple(events)
        self.peers = peers = peers or Peers(config)
        self._dispatch = Dispatch(
            handlers,
            hooks=hooks,
            before_answers=before_answers,
            after_turn=after_turn,
            limits=limits,
            frame_limit=config.frame_max_length,
            admission=admission,
            peers=peers,
        )
        self._limits = Limits(
            oneway=config.server_oneway_semaphore_value,
            oneway_setting=f"serverOnewaySemaphoreValue={config.server_oneway_semaphore_value}",
            calls=config.server_async_semaphore_value,
            calls_setting=f"serverAsyncSemaphoreValue={config.server_async_semaphore_value}",
            unsent_high=config.unsent_high,
            unsent_low=config.unsent_low,
            stops_reading=True,
            peers=peers,
        )
        self._tls = tls_contexts(config)
        self._numbers = itertools.count(1)
        self._connection_closed = trio.lowlevel.ParkingLot()
        self.connections: set[Connection] = set()

    def statistics(self) -> ServerStatistics:
        """Current counts."""
        return ServerStatistics(len(self.connections), self._dispatch.in_flight())

    async def serve(
        self, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. Starts with the bound address, `host:port`. Raises ListenFailed."""
        listener = await self._network.listen(host, port)
        ours: set[Connection] = set()
        try:
            async with shelter() as connections:
                try:
                    allowed = self._config.server_channel_max_idle_time_seconds
                    connections.start_soon(close_idle, lambda: ours, allowed, self._events)
                    task_status.started(listener.address)
                    await self._accept(listener, connections, ours)
                finally:
                    with trio.CancelScope(shield=True):
                        await listener.aclose()
                        await self._drain(ours)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _accept(self, listener: Listener, nursery: trio.Nursery, ours: set[Connection]) -> None:
        while True:
            stream = await accepted(listener, log)
            host = host_of(stream.peer)
            limit = self.peers.connected(host)
            if limit is None:
                nursery.start_soon(self._greet, stream, host, ours)
            else:
                if self.peers.may_log(host, trio.current_time()):
                    log.warning("a connection of %s is closed: %s allows no more", stream.peer, limit)
                await stream.aclose()

    async def _greet(self, raw: ByteStream, host: str, ours: set[Connection]) -> None:
        try:
            idle = self._config.server_channel_max_idle_time_seconds
            detected = await detect_tls(raw, self._config.tls_mode, self._tls, idle, log, self.peers)
            if detected is not None:
                await self._serve_one(*detected, ours)
        finally:
            self.peers.disconnected(host)
            with trio.CancelScope(shield=True):
                await raw.aclose()

    async def _serve_one(self, stream: ByteStream, first: bytes, ours: set[Connection]) -> None:
        connection = Connection(stream, self._dispatch, self._limits, next(self._numbers))
        self.connections.add(connection)
        ours.add(connection)
        try:
            notify(self._events, "connected", connection)
            await connection.run(first)
            if connection.failure:
                notify(self._events, "failed", connection)
        finally:
            self.connections.discard(connection)
            ours.discard(connection)
            notify(self._events, "closed", connection)
            self._connection_closed.unpark_all()

    async def _drain(self, ours: set[Connection]) -> None:
        for connection in ours:
            connection.drain()
        with trio.move_on_after(self._config.server_drain_seconds):
            while ours:
                await self._connection_closed.park()


def tls_contexts(config: ServerConfig) -> TlsContexts | OwnContext | None:
    """The contexts for TLS connections; None if TLS is not served."""
    if config.tls_mode is TlsMode.DISABLED:
        return None
    if not config.tls_cert_path:
        return OwnContext() if config.tls_test_mode else None
    from rocketlet.remoting.tls import server_contexts  # ssl takes 20 ms to import

    return server_contexts(config)
