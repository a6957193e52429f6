"""One client connection: reads, passes complete requests to their handlers, and writes the answers.

Two tasks, as in remoting: one reads and runs the handlers, one writes what the socket does not take at once. A handler
that does not wait runs within the reader's turn; all answers of a turn leave in one write.

Bounds, all in bytes: received bytes that we still hold are limited by the granted window (`http2/protocol.py`); unread
answers above MAX_UNREAD stop new calls, and above twice that end the connection. A request must be complete within
REQUEST_SECONDS. There are at most as many waiting handlers as streams.

Java: io.grpc.netty.NettyServerHandler
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

import trio
from google.protobuf.message import DecodeError

from rocketlet.proxy import grpc_wire
from rocketlet.proxy.call import SMALL_REQUEST, Call, Method, Refusal
from rocketlet.proxy.grpc_wire import MESSAGE_HEAD, MESSAGE_HEAD_SIZE, GrpcStatus
from rocketlet.proxy.http2.frames import ErrorCode
from rocketlet.proxy.http2.protocol import Breach, Event, Gone, Headers, Http2Server, Opened, Received, Stream
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.transport import ByteStream

log = logging.getLogger("rocketlet.proxy.connection")

READ_SIZE = 32 << 10
"""A turn over so much takes 10 ms at most, which is what others may have to wait for theirs."""
MAX_UNREAD = 16 << 20
MUCH_HELD = 1 << 20
REQUEST_SECONDS = 30.0
GREETING_SECONDS = 10.0
IDLE_SECONDS = 120.0
"""Without any call open but the Telemetry of clients that have announced their end."""
SILENT_SECONDS = 60.0
"""Without a byte, though calls are open: then a PING asks whether the peer is still there."""
_PONG_SECONDS = 30.0
STUCK_SECONDS = 120.0
"""Without any progress in writing what waits."""
_CLOSE_SECONDS = 1.0


Admit = Callable[[Call, Any], None]
"""Whether a call is served: with its request, before its handler. Raises Refusal."""


class CallEvents(Protocol):
    """Counts calls."""

    def over(self, call: Call, status: GrpcStatus, now: float) -> None: ...


class ConnectionEvents(CallEvents, Protocol):
    """The server, which has all connections."""

    def holds_much(self, now: float) -> None:
        """A connection holds more than MUCH_HELD, so all of them together may hold too much."""


class GrpcConnection:
    """See the module. `run` is called once."""

    def __init__(
        self, stream: ByteStream, methods: Mapping[bytes, Method], events: ConnectionEvents, admit: Admit | None
    ) -> None:
        self.peer = stream.peer
        self.local = stream.local
        self.calls: set[Call] = set()
        self.closed = False
        self.when_closed: list[Callable[[], None]] = []
        now = trio.current_time()
        self._stream = stream
        self._methods = methods
        self._events = events
        self._admit = admit
        self._http2 = Http2Server(now)
        self._connected_at = self._received_at = self._progress_at = self._busy_at = now
        self._pinged_at: float | None = None
        self._waiting: list[bytes] = []  # to be written, in order
        self._waiting_size = 0
        self._in_turn = False
        self._writer_wakes = trio.Event()
        self._all_written = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._reason = ""

    def __repr__(self) -> str:
        return f"<GrpcConnection {self.local} - {self.peer}: {len(self.calls)} calls, {self.unread} bytes unread>"

    @property
    def unread(self) -> int:
        """Bytes that the peer has not read."""
        return self._waiting_size + self._http2.queued

    @property
    def held(self) -> int:
        """Bytes of requests in progress."""
        return self._http2.held

    # ---- lifetime

    async def run(self, first: bytes = b"") -> None:
        """Serve until either side ends it. Never raises an error caused by the peer."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._write)
                await self._read(first)
                if self._waiting and not self.closed:  # the GOAWAY with the reason
                    self._all_written = trio.Event()
                    with trio.move_on_after(_CLOSE_SECONDS):
                        await self._all_written.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.closed = True
            for call in list(self.calls):
                self._end_call(call, GrpcStatus.CANCELLED)
            for callback in self.when_closed:
                callback()
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    async def _read(self, chunk: bytes) -> None:
        try:
            while True:
                if chunk:
                    self._received_at = trio.current_time()
                    self._pinged_at = None
                    self._turn(chunk)
                chunk = await self._stream.receive_some(READ_SIZE)
                if not chunk:
                    return
        except Breach as breach:
            self._reason = str(breach)
            log.info("%s: %s; its connection is closed", self.peer, breach)
            self._flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("the connection to %s broke: %s", self.peer, error.__cause__ or error)

    def close(self, reason: str, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End it with a reason."""
        if not self.closed:
            log.info("%s: %s; its connection is closed", self.peer, reason)
            self.closed = True
            self._http2.go_away(code, reason)
            if not self._waiting:
                self._flush()
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    def go_away(self) -> None:
        """Finish the calls in progress and accept no others."""
        self._http2.go_away()
        self._flush()

    def look_after(self, now: float) -> None:
        """Called every few seconds: ends whatever has waited too long."""
        # The C# client leaves its Telemetry open for as long as its process runs.
        if len(self._http2.streams) > sum(call.is_abandoned for call in self.calls):
            self._busy_at = now
        if not self._http2.is_greeted and now - self._connected_at > GREETING_SECONDS:
            self.close(f"no HTTP/2 within {GREETING_SECONDS:g} s")
        elif now - self._busy_at > IDLE_SECONDS:
            self.close(f"no call for {IDLE_SECONDS:g} s")
        elif self.unread and now - self._progress_at > STUCK_SECONDS:
            self.close(f"it has read nothing for {STUCK_SECONDS:g} s")
        elif self._pinged_at is not None:
            if now - self._pinged_at > _PONG_SECONDS:
                self.close("no answer to a PING")
        elif now - self._received_at > SILENT_SECONDS:
            self._pinged_at = now
            self._http2.ping()
            self._flush()
        if not self.closed:
            overdue = [
                call for call in self.calls if not call.stream.ended_by_peer and now - call.began > REQUEST_SECONDS
            ]
            for call in overdue:
                if not call.method.is_stream:
                    call.end(GrpcStatus.DEADLINE_EXCEEDED, f"the request was not whole within {REQUEST_SECONDS:g} s")

    # ---- reading

    def _turn(self, chunk: bytes) -> None:
        now = trio.current_time()
        self._in_turn = True
        try:
            for event in self._http2.receive(chunk, now):
                self._handle(event, now)
        finally:
            self._in_turn = False
        self._flush()
        if self.held + self.unread > MUCH_HELD:
            self._events.holds_much(now)

    def _handle(self, event: Event, now: float) -> None:
        kind = type(event)
        if kind is Received:
            _, data, ended = event = cast(Received, event)
            call = event.stream.context
            if call is not None and not call.is_over:
                self._received(call, data, ended)
        elif kind is Opened:
            self._opened(cast(Opened, event), now)
        else:
            call = cast(Gone, event).stream.context
            if call is not None:
                self._end_call(call, GrpcStatus.CANCELLED)

    def _opened(self, event: Opened, now: float) -> None:
        stream, headers, ended = event
        metadata = dict(headers)
        method = self._methods.get(metadata.get(b":path", b""))
        if metadata.get(b":method") != b"POST" or not metadata.get(b"content-type", b"").startswith(
            b"application/grpc"
        ):
            status = grpc_wire.UNSUPPORTED_MEDIA_TYPE if method is not None else grpc_wire.NOT_FOUND
            self._http2.send_headers(stream, status, end=True)
        elif method is None:
            self._refuse(stream, GrpcStatus.UNIMPLEMENTED, f"no method {_loggable(headers)}")
        elif metadata.get(b"grpc-encoding", b"identity") != b"identity":
            self._refuse(stream, GrpcStatus.UNIMPLEMENTED, "compressed requests are not served")
        elif self.unread > MAX_UNREAD:
            self._refuse(stream, GrpcStatus.RESOURCE_EXHAUSTED, f"{self.unread} bytes of answers were not read")
        elif ended:
            self._refuse(stream, GrpcStatus.INVALID_ARGUMENT, "a call without request")
        else:
            call = Call(self, stream, method, metadata, now, grpc_wire.timeout(metadata.get(b"grpc-timeout")))
            stream.context = call
            self.calls.add(call)

    def _refuse(self, stream: Stream, status: GrpcStatus, reason: str) -> None:
        block = grpc_wire.ANSWER_HEADERS + grpc_wire.trailers(status, reason)
        self._http2.send_headers(stream, block, end=True)

    def _received(self, call: Call, data: bytes, ended: bool) -> None:
        body = call.body
        body += data
        if call.method.is_stream:
            self._received_some(call, ended)
        elif len(body) >= MESSAGE_HEAD_SIZE or ended:
            compressed, size = MESSAGE_HEAD.unpack_from(body) if len(body) >= MESSAGE_HEAD_SIZE else (0, 0)
            if size > call.method.largest:
                call.refuse(*too_large(call.method, size))  # before it has arrived: it would have to be held
            elif ended:
                if compressed or len(body) != MESSAGE_HEAD_SIZE + size:
                    call.end(GrpcStatus.INTERNAL, "the request is not one message")
                else:
                    call.body = bytearray()
                    self._serve(call, bytes(memoryview(body)[MESSAGE_HEAD_SIZE:]))
            elif len(body) > MESSAGE_HEAD_SIZE + size:
                call.end(GrpcStatus.INTERNAL, "the request is more than one message")

    def _received_some(self, call: Call, ended: bool) -> None:
        body = call.body
        at = 0
        while len(body) - at >= MESSAGE_HEAD_SIZE and not call.is_over:
            compressed, size = MESSAGE_HEAD.unpack_from(body, at)
            if compressed or size > call.method.largest:
                call.end(GrpcStatus.RESOURCE_EXHAUSTED, f"a message of {size} bytes, {call.method.largest} is the most")
                return
            if len(body) - at < MESSAGE_HEAD_SIZE + size:
                break
            at += MESSAGE_HEAD_SIZE
            self._serve(call, bytes(body[at : at + size]))
            at += size
        del body[:at]
        self._http2.release(call.stream, len(body))
        if ended:
            call.end()

    def _serve(self, call: Call, data: bytes) -> None:
        method = call.method
        try:
            if method.check is not None and len(data) > SMALL_REQUEST:
                method.check(data)
            request = method.request.FromString(data)
            if self._admit is not None:
                self._admit(call, request)
            awaitable = method.serve(call, request)
        except DecodeError as error:
            call.end(GrpcStatus.INTERNAL, f"a request that cannot be decoded: {error}")
        except Refusal as refusal:
            if method.is_stream:
                call.end(GrpcStatus.INVALID_ARGUMENT, f"{refusal.code}: {refusal}")
            else:
                call.refuse(refusal.code, str(refusal))
        except Exception as error:  # noqa: BLE001 - one request fails and is logged, the others go on
            self._failed(call, error)
        else:
            if awaitable is not None:
                self.start(call, awaitable)

    @staticmethod
    def _failed(call: Call, error: Exception) -> None:
        """The reason is logged."""
        log.error("%s of %s failed", call.method.name, call.owner.peer, exc_info=error)
        call.refuse(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"[:200])

    def start(self, call: Call, awaitable: Awaitable[Any]) -> None:
        """Run a waiting handler until it returns, the call ends, or its deadline passes."""
        assert self._nursery is not None
        self._nursery.start_soon(self._drive, call, awaitable)

    async def _drive(self, call: Call, awaitable: Awaitable[Any]) -> None:
        with trio.CancelScope() as scope:
            if call.deadline is not None:
                scope.deadline = call.deadline
            call.scope = scope
            if call.is_over:
                scope.cancel()
            try:
                answer = await awaitable
            except Refusal as refusal:
                call.refuse(refusal.code, str(refusal))
            except Exception as error:  # noqa: BLE001
                self._failed(call, error)
            else:
                if answer is not None:
                    call.reply(answer)
        call.scope = None
        if scope.cancelled_caught:
            call.end(GrpcStatus.DEADLINE_EXCEEDED, "the client's deadline has passed")

    # ---- answering

    def send_message(self, call: Call, message: bytes, *, last: bool) -> None:
        """What Call.reply and Call.send do."""
        if not call.has_answered:
            call.has_answered = True
            self._http2.send_headers(call.stream, grpc_wire.ANSWER_HEADERS)
        self._http2.send_data(call.stream, message, grpc_wire.OK_TRAILERS if last else None)
        if last:
            self._end_call(call, GrpcStatus.OK)
        self._written()

    def end(self, call: Call, status: GrpcStatus, reason: str = "") -> None:
        """What Call.end does."""
        if call.has_answered:
            self._http2.send_data(call.stream, b"", grpc_wire.trailers(status, reason))
        else:
            self._refuse(call.stream, status, reason)
        self._end_call(call, status)
        self._written()

    def _written(self) -> None:
        if not self._in_turn:
            self._writer_wakes.set()  # runs after all tasks that are due now, so their answers leave together

    def _end_call(self, call: Call, status: GrpcStatus) -> None:
        if call.is_over:
            return
        call.is_over = True
        call.body = bytearray()
        self.calls.discard(call)
        call.stream.context = None
        self._events.over(call, status, trio.current_time())
        if call.scope is not None and status is not GrpcStatus.OK:
            call.scope.cancel()
        if call.when_over is not None:
            call.when_over(call)

    # ---- writing

    def _flush(self) -> None:
        out = self._http2.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        if not self._waiting:
            try:
                sent = self._stream.send_now(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                sent = 0  # the writer gets the same error
            self._progress_at = trio.current_time()
            if sent == len(data):
                return
            data = data[sent:]
        self._waiting.append(data)
        self._waiting_size += len(data)
        self._writer_wakes.set()
        if self.unread > 2 * MAX_UNREAD:
            self.close(f"{self.unread} bytes of answers were not read", ErrorCode.ENHANCE_YOUR_CALM)

    async def _write(self) -> None:
        try:
            while True:
                await self._writer_wakes.wait()
                self._writer_wakes = trio.Event()
                self._flush()
                while self._waiting:
                    data = self._waiting[0]  # it stays queued: later data must not overtake it
                    await self._stream.send_all(data)
                    del self._waiting[0]
                    self._waiting_size -= len(data)
                    self._progress_at = trio.current_time()
                self._all_written.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"broken: {error.__cause__ or error}")


def too_large(method: Method, size: int) -> tuple[Code, str]:
    """Refuse a request that is not even read."""
    if method.name == "SendMessage":
        return Code.MESSAGE_BODY_TOO_LARGE, f"a message of {size} bytes, {method.largest} is the most"
    return Code.PAYLOAD_TOO_LARGE, f"a request of {size} bytes, {method.largest} is the most"


def _loggable(headers: Headers) -> str:
    return dict(headers).get(b":path", b"").decode("utf-8", "replace")[:80]
