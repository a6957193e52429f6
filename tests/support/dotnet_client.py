"""The official C# client on the wire, over real sockets: what .NET's HTTP/2 writes, and what it requires of a server.

It writes bytes as the client 5.2.1 does on .NET 8, and is as strict. Where it differs from clients on grpc-core:

- Header blocks use the static table only, without Huffman codes; names and values are literals that are not indexed.
- A request is HEADERS, its message in one or more DATA, and an empty DATA that ends the stream.
- The window of a stream begins with 65,535 bytes and doubles while data arrives, up to 16 MiB; updates leave when an
  eighth of it was read. The connection's window is 64 MiB.
- To measure the round trip it sends a PING, with an update of the connection's window before it, when headers or data
  arrive: twice at the beginning, then once a second. The answer must carry the same bytes.
- The server's first frame must be SETTINGS, and no frame may exceed 16,384 bytes.
- A message of an answer may have 4 MiB, headers and all; it is not compressed.
- Metadata names who calls (`caller-…`), the language is DOTNET, the namespace is empty; the deadline of a Telemetry is
  the largest that the header can express. `x-mq-date-time` is local time, though it ends in Z, and the signature is in
  upper case.
- Its TLS requires ALPN and accepts every certificate; it closes connections without GOAWAY, and at the end of a client
  leaves Telemetry open until the process ends.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hpack import Decoder

from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.schema import PACKAGE
from tests.support.grpc_client import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    framed,
)

FIRST_WINDOW = 65_535
LARGEST_WINDOW = 16 << 20
CONNECTION_WINDOW = 64 << 20
LARGEST_FRAME = 16_384
LARGEST_MESSAGE = 4 << 20
FOREVER = "99999999S"
CANCEL = 8

_ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 2, 4
_INDEXED = {(":method", "POST"): b"\x83", (":scheme", "http"): b"\x86", (":scheme", "https"): b"\x87"}
_NAMES = {":authority": b"\x01", ":path": b"\x04", "user-agent": b"\x0f\x2b", "content-type": b"\x0f\x10"}


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """HPACK as .NET writes it."""
    return b"".join(
        _INDEXED.get((name, value)) or _NAMES.get(name, b"\0" + _text(name)) + _text(value) for name, value in headers
    )


def _text(value: str) -> bytes:
    data = value.encode("ascii")
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, length = len(data) - 127, b"\x7f"
    while rest >= 128:
        rest, length = rest >> 7, length + bytes([rest & 127 | 128])
    return length + bytes([rest]) + data


def signed(key: str, secret: str, now: datetime) -> list[tuple[str, str]]:
    """The time and the signature of a call."""
    when = now.strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.new(secret.encode("ascii"), when.encode("ascii"), hashlib.sha1).hexdigest().upper()
    words = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("x-mq-date-time", when), ("authorization", words)]


@dataclass
class DotnetStream:
    """One call."""

    number: int
    room: int  # that the server leaves us
    window: int = FIRST_WINDOW
    left: int = FIRST_WINDOW  # that we leave the server
    unreported: int = 0
    data: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)
    over: bool = False

    def taken(self) -> bytes | None:
        """The next message."""
        end = 5 + int.from_bytes(self.data[1:5], "big")
        if len(self.data) < max(end, 5):
            return None
        assert self.data[0] == 0, "a compressed message"
        assert end - 5 <= LARGEST_MESSAGE, f"a message of {end - 5} bytes"
        message = bytes(self.data[5:end])
        del self.data[:end]
        return message


class DotnetConnection:
    """A connection, which fails with AssertionError where .NET's would end with an error."""

    def __init__(
        self,
        address: str,
        *,
        tls: bool,
        client_id: str,
        account: tuple[str, str],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        host, port = address.rsplit(":", 1)
        plain = socket.create_connection((host, int(port)), timeout=20)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            secured = context.wrap_socket(plain)
            assert secured.selected_alpn_protocol() == "h2", "without it .NET speaks HTTP/1.1"
            plain = secured
        self._socket = plain
        self._start = [(":method", "POST"), (":scheme", "https" if tls else "http"), (":authority", address)]
        self._client_id = client_id
        self._account, self._now = account, now
        self._decoder = Decoder(1 << 16)
        self._buffer = b""
        self._streams: dict[int, DotnetStream] = {}
        self._next = 1
        self._room, self._stream_room = FIRST_WINDOW, FIRST_WINDOW
        self._left, self._unreported = CONNECTION_WINDOW, 0
        self._greeted = self._measuring = False
        self._burst, self._ping, self._pinged_at = 4, -1, 0.0
        self.pings_answered = 0
        settings = b"".join(
            kind.to_bytes(2, "big") + value.to_bytes(4, "big")
            for kind, value in ((_ENABLE_PUSH, 0), (_INITIAL_WINDOW_SIZE, FIRST_WINDOW))
        )
        update = (CONNECTION_WINDOW - FIRST_WINDOW).to_bytes(4, "big")
        self._write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, update))
        self.until(lambda: self._greeted)  # a connection is used once the server's settings have come

    def close(self) -> None:
        """As at the end of the process: without a word."""
        self._socket.close()

    # ---- calls

    def call(self, method: str, request: Any, kind: type[Any] | None = None) -> Any:
        """A unary call."""
        (answer,) = self.stream(method, request, kind or getattr(m, f"{method}Response"), "3S")
        return answer

    def stream(self, method: str, request: Any, kind: type[Any], timeout: str) -> list[Any]:
        """A call whose answer is read to its end."""
        one = self.open(method, timeout)
        self.send(one, request)
        self._write(frame(DATA, 1, one.number))
        self.until(lambda: one.over)
        assert one.headers.get("grpc-status") == "0", one.headers
        answers = []
        while (message := one.taken()) is not None:
            answers.append(kind.FromString(message))
        assert not one.data
        return answers

    def open(self, method: str, timeout: str) -> DotnetStream:
        """The headers of a call."""
        one = DotnetStream(self._next, self._stream_room)
        self._next += 2
        self._streams[one.number] = one
        self._write(frame(HEADERS, 4, one.number, header_block(self.headers(method, timeout))))
        return one

    def headers(self, method: str, timeout: str) -> list[tuple[str, str]]:
        """In the order of the client."""
        return [
            *self._start,
            (":path", f"/{PACKAGE}.MessagingService/{method}"),
            ("user-agent", "grpc-dotnet/2.80.0 (.NET 8.0.11; CLR 8.0.11; net8.0; linux; x64)"),
            ("te", "trailers"),
            ("grpc-accept-encoding", "identity,gzip,deflate"),
            ("x-mq-language", "DOTNET"),
            ("x-mq-client-version", "5.2.1"),
            ("x-mq-request-id", str(uuid.uuid4())),
            ("x-mq-client-id", self._client_id),
            ("x-mq-namespace", ""),
            *signed(*self._account, self._now()),
            ("caller-user", "root"),
            ("caller-machine", "host"),
            ("caller-os", "Unix 6.1.0.0"),
            ("grpc-timeout", timeout),
            ("content-type", "application/grpc"),
        ]

    def send(self, one: DotnetStream, message: Any) -> None:
        """A message of a call, in as many frames as the windows allow."""
        rest = framed(message.SerializeToString())
        while rest:
            self.until(lambda: min(self._room, one.room) > 0)
            piece = rest[: min(self._room, one.room, LARGEST_FRAME)]
            rest = rest[len(piece) :]
            self._room -= len(piece)
            one.room -= len(piece)
            self._write(frame(DATA, 0, one.number, piece))

    def next(self, one: DotnetStream, kind: type[Any]) -> Any:
        """The next message of a call that goes on."""
        self.until(lambda: len(one.data) >= 5 + int.from_bytes(one.data[1:5], "big") and len(one.data) >= 5)
        return kind.FromString(one.taken())

    def streams(self) -> list[DotnetStream]:
        """All calls but the cancelled ones."""
        return list(self._streams.values())

    def cancel(self, one: DotnetStream) -> None:
        """What the end of a deadline does."""
        del self._streams[one.number]
        self._write(frame(RST_STREAM, 0, one.number, CANCEL.to_bytes(4, "big")))

    # ---- frames

    def until(self, true: Callable[[], bool]) -> None:
        """Read frames until something is true."""
        while not true():
            self._read()

    def _write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _read(self) -> None:
        while len(self._buffer) < 9 or len(self._buffer) < 9 + int.from_bytes(self._buffer[:3], "big"):
            more = self._socket.recv(1 << 16)
            assert more, "the server closed the connection"
            self._buffer += more
        size = int.from_bytes(self._buffer[:3], "big")
        kind, flags, number = self._buffer[3], self._buffer[4], int.from_bytes(self._buffer[5:9], "big")
        payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
        assert size <= LARGEST_FRAME, f"a frame of {size} bytes"
        assert self._greeted or (kind == SETTINGS and not flags & 1), f"the first frame is {kind}"
        assert kind not in (GOAWAY, CONTINUATION), payload
        one = self._streams.get(number)
        if kind == SETTINGS:
            self._settings(bool(flags & 1), payload)
        elif kind == PING:
            self._pong(bool(flags & 1), payload)
        elif kind == WINDOW_UPDATE:
            more_room = int.from_bytes(payload, "big")
            assert more_room > 0
            if number == 0:
                self._room += more_room
            elif one is not None:
                one.room += more_room
        elif kind == HEADERS:
            assert flags & 4, "headers in several frames"
            decoded = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            if one is not None:
                self._measure()
                one.headers.update(decoded)
                one.over |= bool(flags & 1)
        elif kind == DATA:
            self._left -= size
            assert self._left >= 0, "the window of the connection was exceeded"
            self._unreported += size
            if one is not None:
                self._data(one, payload, bool(flags & 1))
            if self._unreported >= CONNECTION_WINDOW // 8:
                self._report()
        elif kind == RST_STREAM and one is not None:
            raise AssertionError(f"stream {number} was reset: {int.from_bytes(payload, 'big')}")

    def _settings(self, acknowledged: bool, payload: bytes) -> None:
        if acknowledged:
            self._measuring = True
            return
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2], "big") == _INITIAL_WINDOW_SIZE:
                room = int.from_bytes(payload[at + 2 : at + 6], "big")
                for one in self._streams.values():
                    one.room += room - self._stream_room
                self._stream_room = room
        self._greeted = True
        self._write(frame(SETTINGS, 1, 0))

    def _data(self, one: DotnetStream, payload: bytes, end: bool) -> None:
        one.left -= len(payload)
        assert one.left >= 0, "the window of a stream was exceeded"
        if not end:
            self._measure()
        one.data += payload
        one.over |= end
        one.unreported += len(payload)
        if one.unreported >= one.window // 8 and not one.over:
            larger = min(LARGEST_WINDOW, one.window * 2) if self.pings_answered else one.window
            update = one.unreported + larger - one.window
            one.window, one.unreported = larger, 0
            one.left += update
            self._write(frame(WINDOW_UPDATE, 0, one.number, update.to_bytes(4, "big")))

    def _report(self) -> None:
        if self._unreported:
            self._write(frame(WINDOW_UPDATE, 0, 0, self._unreported.to_bytes(4, "big")))
            self._left += self._unreported
            self._unreported = 0

    def _measure(self) -> None:
        """The PING that measures the round trip."""
        if not self._measuring:
            return
        self._burst -= 1
        if self._burst < 0 and time.monotonic() - self._pinged_at <= 1:
            return
        self._burst -= self._burst > 0
        self._ping -= 1
        self._measuring, self._pinged_at = False, time.monotonic()
        self._report()
        self._write(frame(PING, 0, 0, self._ping.to_bytes(8, "big", signed=True)))

    def _pong(self, acknowledged: bool, payload: bytes) -> None:
        if not acknowledged:
            self._write(frame(PING, 1, 0, payload))
            return
        assert int.from_bytes(payload, "big", signed=True) == self._ping, "another PING was answered"
        self._measuring = True
        self.pings_answered += 1
