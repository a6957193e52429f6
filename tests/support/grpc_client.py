"""A gRPC client for tests, over any network: complete calls, and raw frames that no client would send.

It has its own HTTP/2, so that the server's is not tested against itself: hpack encodes the headers, and input is split
into frames here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from hpack import Decoder, Encoder

from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.schema import PACKAGE
from rocketlet.remoting.transport import ByteStream, Network

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
WINDOW = 1 << 30


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def body(stream: int, data: bytes, *, end: bool = True) -> bytes:
    """The DATA frames of a payload."""
    pieces = [data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16)] or [b""]
    last = len(pieces) - 1
    return b"".join(frame(DATA, int(end and at == last), stream, piece) for at, piece in enumerate(pieces))


class CallFailed(Exception):
    """The call ended with a gRPC status other than OK, or the stream was reset."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status}: {why}")
        self.status = status


class RawConnection:
    """Frames out, frames in."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.encoder = Encoder()
        self.decoder = Decoder(1 << 20)
        self._buffer = b""
        self._sending = trio.Lock()

    async def send(self, data: bytes) -> None:
        async with self._sending:
            await self.stream.send_all(data)

    async def greet(self, window: int = WINDOW) -> None:
        """Send the preface, with large windows unless a test needs small ones."""
        settings = (4).to_bytes(2, "big") + window.to_bytes(4, "big")
        await self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        await self.send(frame(WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4, "big")))

    async def frame(self) -> Frame | None:
        """The next one; None at the end."""
        while len(self._buffer) < 9 or len(self._buffer) < 9 + int.from_bytes(self._buffer[:3], "big"):
            try:
                more = await self.stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not more:
                return None
            self._buffer += more
        end = 9 + int.from_bytes(self._buffer[:3], "big")
        head, payload, self._buffer = self._buffer[:9], self._buffer[9:end], self._buffer[end:]
        return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload)

    async def goaway(self) -> tuple[int, str]:
        """Read until the server ends the connection. Returns its code and reason."""
        while (received := await self.frame()) is not None:
            if received.kind == GOAWAY:
                return int.from_bytes(received.payload[4:8], "big"), received.payload[8:].decode()
        raise AssertionError("the connection ended without GOAWAY")

    def headers(self, stream: int, method: str, metadata: Sequence[tuple[str, str]] = (), flags: int = 4) -> bytes:
        """The HEADERS of a call."""
        block = self.encoder.encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", f"/{PACKAGE}.MessagingService/{method}"),
                (":authority", "test"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("x-mq-client-id", "host@1@0@a"),
                *metadata,
            ]
        )
        return frame(HEADERS, flags, stream, block)


@dataclass
class _Answer:
    """The state of one call."""

    data: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)
    is_ended: bool = False
    changed: trio.Condition = field(default_factory=trio.Condition)


class Messages:
    """An async iterator that raises CallFailed at the end of a call that failed."""

    def __init__(self, answer: _Answer, kind: type[Any]) -> None:
        self._answer = answer
        self._kind = kind

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Any:
        answer = self._answer
        async with answer.changed:
            while True:
                end = 5 + int.from_bytes(answer.data[1:5], "big")
                if len(answer.data) >= max(end, 5):
                    message = bytes(answer.data[5:end])
                    del answer.data[:end]
                    return self._kind.FromString(message)
                if answer.is_ended:
                    status = answer.headers.get("grpc-status", "")
                    if status == "0":
                        raise StopAsyncIteration
                    code = int(status) if status.isdigit() else -1
                    raise CallFailed(code, answer.headers.get("grpc-message", status))
                await answer.changed.wait()


class GrpcClient:
    """Calls over one connection."""

    def __init__(self, stream: ByteStream, client_id: str = "host@1@0@a") -> None:
        self.raw = RawConnection(stream)
        self.client_id = client_id
        self._answers: dict[int, _Answer] = defaultdict(_Answer)
        self._next = 1

    async def read(self) -> None:
        """Read until the end."""
        while (received := await self.raw.frame()) is not None:
            if received.kind == SETTINGS and not received.flags & 1:
                await self.raw.send(frame(SETTINGS, 1, 0))
            elif received.kind == PING and not received.flags & 1:
                await self.raw.send(frame(PING, 1, 0, received.payload))
            elif received.kind in (DATA, HEADERS, RST_STREAM):
                await self._receive(received)
        for answer in self._answers.values():
            async with answer.changed:
                answer.headers.setdefault("grpc-status", "14")
                answer.is_ended = True
                answer.changed.notify_all()

    async def _receive(self, received: Frame) -> None:
        answer = self._answers[received.stream]
        if received.kind == DATA:
            answer.data += received.payload
        elif received.kind == HEADERS:
            for name, value in self.raw.decoder.decode(received.payload):
                answer.headers[str(name)] = str(value)
        elif not answer.is_ended:
            answer.headers["grpc-status"] = f"reset {int.from_bytes(received.payload, 'big')}"
        answer.is_ended |= received.kind == RST_STREAM or bool(received.flags & 1)
        async with answer.changed:
            answer.changed.notify_all()

    def open(self, method: str, *metadata: tuple[str, str]) -> tuple[int, bytes]:
        """A stream's number and its headers."""
        number, self._next = self._next, self._next + 2
        return number, self.raw.headers(number, method, metadata)

    def messages(self, number: int, kind: type[Any]) -> Messages:
        """The messages of an answer as they come."""
        return Messages(self._answers[number], kind)

    async def call(self, method: str, request: Any, *metadata: tuple[str, str], timeout: str = "3S") -> Any:
        """A unary call. Raises CallFailed."""
        number, head = self.open(method, ("grpc-timeout", timeout), *metadata)
        await self.raw.send(head + body(number, framed(request.SerializeToString())))
        kind = getattr(m, f"{method}Response")
        answers = [message async for message in self.messages(number, kind)]
        assert len(answers) == 1, answers
        return answers[0]

    async def receive(self, request: m.ReceiveMessageRequest, timeout: str = "30S") -> list[m.ReceiveMessageResponse]:
        """A receive, whole."""
        number, head = self.open("ReceiveMessage", ("grpc-timeout", timeout))
        await self.raw.send(head + body(number, framed(request.SerializeToString())))
        return [message async for message in self.messages(number, m.ReceiveMessageResponse)]

    async def telemetry(self, settings: m.Settings) -> tuple[int, Messages]:
        """Open a telemetry with these settings."""
        number, head = self.open("Telemetry")
        command = m.TelemetryCommand(settings=settings)
        await self.raw.send(head + frame(DATA, 0, number, framed(command.SerializeToString())))
        return number, self.messages(number, m.TelemetryCommand)


@asynccontextmanager
async def grpc_client(network: Network, address: str) -> AsyncIterator[GrpcClient]:
    """A client, connected."""
    stream = await network.dial(address)
    client = GrpcClient(stream)
    try:
        async with trio.open_nursery() as nursery:
            await client.raw.greet()
            nursery.start_soon(client.read)
            try:
                yield client
            finally:
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()
