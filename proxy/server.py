"""The port: accepts connections, distinguishes TLS from plain by the first byte, and supervises all of them.

HTTP/2 in plain text begins with `P`, TLS with 22, so both are served on one port; Java's and Go's clients speak TLS
unless configured otherwise.

Java: proxy/grpc/GrpcServer.java, ProxyAndTlsProtocolNegotiator.java
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from rocketlet.proxy.call import Call, Method
from rocketlet.proxy.connection import Admit, CallEvents, GrpcConnection
from rocketlet.proxy.grpc_wire import GrpcStatus
from rocketlet.proxy.http2.frames import PREFACE
from rocketlet.remoting.accepting import accepted
from rocketlet.remoting.own_context import OwnContext
from rocketlet.remoting.tls import PrefixedStream, TlsContexts, secured
from rocketlet.remoting.transport import ByteStream, Listener, Network

log = logging.getLogger("rocketlet.proxy.server")

FIRST_BYTE_SECONDS = 10.0
_LOOK_EVERY = 5.0
_ADD_UP_EVERY = 0.05
_CLIENT_HELLO = 0x16
_ALPN = ["h2"]  # required by gRPC clients


class GrpcServer:
    """An object serves once. `tls` gives the contexts for handshakes; None: TLS is not served."""

    def __init__(
        self,
        network: Network,
        methods: Mapping[bytes, Method],
        events: CallEvents,
        *,
        admit: Admit | None = None,
        tls: TlsContexts | OwnContext | None,
        plain: bool = True,
        most_connections: int,
        most_held: int,
        drain_seconds: float,
    ) -> None:
        self.connections: set[GrpcConnection] = set()
        self.refused = 0
        self._network = network
        self._methods = methods
        self._counts = events
        self._admit = admit
        self._tls = tls
        self._plain = plain
        self._most_connections = most_connections
        self._most_held = most_held
        self._drain_seconds = drain_seconds
        self._greeting = 0  # connections whose first byte or handshake has not arrived
        self._added_up_at = 0.0
        self._one_is_over = trio.lowlevel.ParkingLot()

    async def serve(
        self, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; calls in progress are then answered first. Starts with the address. Raises
        ListenFailed."""
        listener = await self._network.listen(host, port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_after)
                task_status.started(listener.address)
                await self._accept(listener, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            stream = await accepted(listener, log)
            if len(self.connections) + self._greeting >= self._most_connections:
                self.refused += 1
                log.warning("%s is refused: %d connections are open", stream.peer, len(self.connections))
                await stream.aclose()
            else:
                self._greeting += 1
                nursery.start_soon(self._serve_one, stream)

    async def _serve_one(self, raw: ByteStream) -> None:
        try:
            try:
                detected = await self._detect_tls(raw)
            finally:
                self._greeting -= 1
            if detected is None:
                return
            connection = GrpcConnection(detected[0], self._methods, self, self._admit)
            self.connections.add(connection)
            try:
                await connection.run(detected[1])
            finally:
                self.connections.discard(connection)
                self._one_is_over.unpark_all()
        finally:
            with trio.CancelScope(shield=True):
                await raw.aclose()

    async def _detect_tls(self, raw: ByteStream) -> tuple[ByteStream, bytes] | None:
        try:
            with trio.move_on_after(FIRST_BYTE_SECONDS):
                first = await raw.receive_some()
                if not first:
                    return None
                if first[0] == _CLIENT_HELLO:
                    if self._tls is None:
                        log.warning("%s speaks TLS, which tls.server.mode=disabled refuses", raw.peer)
                        return None
                    context = await self._tls.ready()
                    if context is None:
                        return None
                    context.set_alpn_protocols(_ALPN)
                    return await secured(PrefixedStream(raw, first), context, server_side=True), b""
                if not self._plain:
                    log.warning("%s connects without TLS, which tls.server.mode=enforcing refuses", raw.peer)
                elif first[: len(PREFACE)] != PREFACE[: len(first)]:
                    log.warning("%s speaks neither HTTP/2 nor TLS; this is the port for gRPC", raw.peer)
                else:
                    return raw, first
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("%s broke before its first call: %s", raw.peer, error.__cause__ or error)
        return None

    async def _look_after(self) -> None:
        while True:
            await trio.sleep(_LOOK_EVERY)
            now = trio.current_time()
            for connection in list(self.connections):
                connection.look_after(now)
            self.holds_much(now)

    def holds_much(self, now: float) -> None:
        """See ConnectionEvents. Adding up 4,000 connections takes a millisecond, so it is not done for every call of
        this."""
        if now - self._added_up_at >= _ADD_UP_EVERY:
            self._added_up_at = now
            self._stay_within(self._most_held)

    def _stay_within(self, limit: int) -> None:
        """If all connections together hold too much, close those that hold most."""
        sizes = sorted(((each.held + each.unread, id(each), each) for each in self.connections), reverse=True)
        total = sum(size for size, _, _ in sizes)
        for size, _, connection in sizes:
            if total <= limit:
                return
            total -= size
            connection.close(f"all connections together hold more than {limit} bytes, and this one holds {size}")

    def over(self, call: Call, status: GrpcStatus, now: float) -> None:
        """See CallEvents."""
        self._counts.over(call, status, now)
        if self._one_is_over:
            self._one_is_over.unpark_all()

    async def drain(self) -> None:
        """Send GOAWAY to all clients, and wait until calls in progress have been answered."""
        for connection in list(self.connections):
            connection.go_away()
        with trio.move_on_after(self._drain_seconds):
            while any(not call.method.is_stream for one in self.connections for call in one.calls):
                await self._one_is_over.park()
