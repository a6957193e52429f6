"""The server's side of one HTTP/2 connection: bytes in, events and bytes out; no I/O and no clock.

`receive` takes bytes and returns their events; output collects in `out`. Every stream belongs to the peer (this server
opens none) and is forgotten as soon as both sides have ended it.

Flow control is what bounds memory. Inbound: a peer may send as many bytes as it was granted, WINDOW per connection;
they are granted again when `release` reports that they are no longer held. Outbound: data beyond the peer's window
waits in its stream; `unsent` says how much, and the owner ends the connection above a limit.

A violation that concerns one stream resets the stream; all others raise Breach, after which `out` holds the GOAWAY and
nothing more is read. Headers of refused streams are decoded all the same, or the compression state of both sides would
differ.

Java: io.netty.handler.codec.http2.Http2ConnectionHandler and the flow controllers
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from hpack import Decoder
from hpack.exceptions import HPACKError

from rocketlet.common.errors import RocketletError
from rocketlet.proxy.http2 import frames, patience
from rocketlet.proxy.http2.frames import ErrorCode
from rocketlet.proxy.http2.patience import Patience

MAX_STREAMS = 1000
WINDOW = 8 << 20
"""Bytes that a peer may have sent and we still hold: of a connection, and at its start of each stream."""
MAX_HEADER_BYTES = 32 << 10
"""Of one request's headers, compressed and not."""
MAX_CONTINUATIONS = 16
OUR_MAX_FRAME = 1 << 17
"""A payload that we take. Larger than the least, so that a body of 4 MiB is 32 frames and not 256."""
_TINY = 32
_GRANT_AT = WINDOW // 8
_CHUNK = 1 << 16  # of a long body, before the next stream's turn

Headers = list[tuple[bytes, bytes]]


class Breach(RocketletError):
    """The peer violates the protocol, and its connection has to end."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{reason} ({code.name})")
        self.code = code


class Stream:
    """One call, both directions. `context` is for the user of the connection."""

    __slots__ = (
        "context",
        "ended_by_peer",
        "ended_by_us",
        "granted",
        "held",
        "id",
        "pending",
        "pending_size",
        "window",
    )

    def __init__(self, number: int, window: int) -> None:
        self.id = number
        self.window = window  # bytes that the peer accepts on this stream
        self.granted = WINDOW  # bytes that it may send
        self.held = 0  # bytes received and not yet released
        self.pending: deque[memoryview | _Trailers] = deque()  # data before trailers, if any
        self.pending_size = 0
        self.ended_by_peer = False
        self.ended_by_us = False
        self.context: Any = None


class _Trailers(NamedTuple):
    block: bytes


class Opened(NamedTuple):
    """A request's headers."""

    stream: Stream
    headers: Headers
    ended: bool


class Received(NamedTuple):
    """A part of its body; the bytes count as held until they are released."""

    stream: Stream
    data: bytes
    ended: bool


class Gone(NamedTuple):
    """The peer has reset the stream, or violated its rules."""

    stream: Stream


Event = Opened | Received | Gone


class Http2Server:
    """See the module. `now` in all calls is the time, of any clock that does not jump."""

    def __init__(self, now: float, *, most_streams: int = MAX_STREAMS) -> None:
        self.streams: dict[int, Stream] = {}
        self.out: list[bytes | memoryview] = []
        self.queued = 0  # bytes waiting for the peer's windows
        self.held = 0  # request bytes received and not yet released
        self.goes_away = False
        """The peer, or we, have said that no further streams are opened."""
        self.last_stream = 0
        self._most_streams = most_streams
        self._patience = Patience(now)
        self._decoder = Decoder(MAX_HEADER_BYTES)
        self._buffer = b""
        self._greeted = False
        self._window = frames.INITIAL_WINDOW  # bytes that the peer accepts on the connection
        self._granted = WINDOW
        self._ungranted = 0
        self._their_initial_window = frames.INITIAL_WINDOW
        self._their_max_frame = frames.LEAST_MAX_FRAME
        self._headers_of = 0  # the stream whose header block is being received
        self._block = bytearray()
        self._block_ends_stream = False
        self._continuations = 0
        self._sendable: dict[Stream, None] = {}  # streams with data and a window of their own
        self.out.append(
            frames.settings(
                {
                    frames.MAX_CONCURRENT_STREAMS: most_streams,
                    frames.INITIAL_WINDOW_SIZE: WINDOW,
                    frames.MAX_FRAME_SIZE: OUR_MAX_FRAME,
                    frames.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
                }
            )
            + frames.window_update(0, WINDOW - frames.INITIAL_WINDOW)
        )

    # ---- reading

    def receive(self, data: bytes, now: float) -> list[Event]:
        """The events in these bytes. Raises Breach; the events before it are lost with the connection."""
        if self._buffer:
            data = self._buffer + data
        at = 0
        events: list[Event] = []
        try:
            if not self._greeted and not (at := self._preface(data)):
                self._buffer = data
                return events
            size = len(data)
            unpack, head_size = frames.HEAD.unpack_from, frames.HEAD_SIZE
            while size - at >= head_size:
                high, low, kind, flags, number = unpack(data, at)
                length = high << 8 | low
                if length > OUR_MAX_FRAME:
                    raise Breach(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes, {OUR_MAX_FRAME} is the most")
                end = at + head_size + length
                if end > size:
                    break
                self._frame(kind, flags, number & frames.LARGEST_WINDOW, data[at + head_size : end], now, events)
                at = end
        except Breach as breach:
            self.goes_away = True
            self.out.append(frames.goaway(self.last_stream, breach.code, str(breach)))
            raise
        self._buffer = data[at:]
        return events

    def _preface(self, data: bytes) -> int:
        """Where the first frame begins; 0 if the preface is incomplete."""
        preface = frames.PREFACE
        if data[: len(preface)] != preface[: len(data)]:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 preface")
        if len(data) < len(preface):
            return 0
        if len(data) >= len(preface) + frames.HEAD_SIZE and data[len(preface) + 3] != frames.SETTINGS:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "no SETTINGS after the preface")
        if len(data) < len(preface) + frames.HEAD_SIZE:
            return 0
        self._greeted = True
        return len(preface)

    @property
    def is_greeted(self) -> bool:
        """Whether the peer has shown that it speaks HTTP/2."""
        return self._greeted

    def _frame(self, kind: int, flags: int, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        if self._headers_of and kind != frames.CONTINUATION:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "another frame within a header block")
        if kind == frames.DATA:
            self._data(flags, number, payload, now, events)
        elif kind == frames.HEADERS:
            self._headers(flags, number, payload, now, events)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, number, payload, now, events)
        elif kind == frames.SETTINGS:
            self._settings(flags, number, payload, now)
        elif kind == frames.WINDOW_UPDATE:
            self._window_update(number, payload, now, events)
        elif kind == frames.PING:
            self._spend(patience.CONTROL, now)
            if number or len(payload) != 8:
                raise Breach(ErrorCode.FRAME_SIZE_ERROR, "a PING that is none")
            if not flags & frames.ACK:
                self.out.append(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.RST_STREAM:
            self._reset(number, payload, now, events)
        elif kind == frames.GOAWAY:
            self._spend(patience.CONTROL, now)
            self.goes_away = True  # the peer opens no further streams; those that are open continue
        elif kind == frames.PUSH_PROMISE:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
        else:  # PRIORITY, which is not needed, and frames that later standards add
            self._spend(patience.CONTROL, now)

    def _spend(self, cost: float, now: float) -> None:
        if not self._patience.spend(cost, now):
            raise Breach(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without payload")

    def _headers(self, flags: int, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        if not number & 1:
            raise Breach(ErrorCode.PROTOCOL_ERROR, f"headers on stream {number}")
        payload = _unpadded(flags, payload)
        if flags & frames.HAS_PRIORITY:
            if len(payload) < 5:
                raise Breach(ErrorCode.FRAME_SIZE_ERROR, "headers too short for their priority")
            payload = payload[5:]
        if number not in self.streams and number <= self.last_stream:
            # The end, by trailers, of a call that is already over here.
            self._spend(patience.RESET, now)
        self._headers_of = number
        self._block_ends_stream = bool(flags & frames.END_STREAM)
        self._continuations = 0
        if flags & frames.END_HEADERS:
            self._block_is_whole(payload, now, events)
        else:
            self._spend(patience.CONTROL, now)
            self._block = bytearray(payload)
            self._check_block()

    def _continuation(self, flags: int, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        self._spend(patience.CONTROL, now)
        if not self._headers_of or number != self._headers_of:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._continuations += 1
        self._block += payload
        self._check_block()
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), bytearray()
            self._block_is_whole(block, now, events)

    def _check_block(self) -> None:
        if len(self._block) > MAX_HEADER_BYTES or self._continuations > MAX_CONTINUATIONS:
            raise Breach(ErrorCode.ENHANCE_YOUR_CALM, f"headers above {MAX_HEADER_BYTES} bytes")

    def _block_is_whole(self, block: bytes, now: float, events: list[Event]) -> None:
        number, self._headers_of = self._headers_of, 0
        if len(block) > MAX_HEADER_BYTES:
            raise Breach(ErrorCode.ENHANCE_YOUR_CALM, f"headers above {MAX_HEADER_BYTES} bytes")
        try:
            headers: Any = self._decoder.decode(block, raw=True)
        except (HPACKError, ValueError, IndexError) as error:
            raise Breach(ErrorCode.COMPRESSION_ERROR, f"headers that cannot be read: {error}") from None
        stream = self.streams.get(number)
        if stream is not None:  # trailers
            if not self._block_ends_stream or stream.ended_by_peer:
                self._break(stream, ErrorCode.PROTOCOL_ERROR, events)
                return
            stream.ended_by_peer = True
            events.append(Received(stream, b"", True))
            self._forget_if_over(stream)
            return
        if number <= self.last_stream:
            return
        self.last_stream = number
        if len(self.streams) >= self._most_streams or self.goes_away:
            self._spend(patience.REFUSED, now)
            self.out.append(frames.reset(number, ErrorCode.REFUSED_STREAM))
            return
        stream = self.streams[number] = Stream(number, self._their_initial_window)
        stream.ended_by_peer = self._block_ends_stream
        events.append(Opened(stream, headers, self._block_ends_stream))

    def _data(self, flags: int, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        size = len(payload)
        if size > self._granted:
            raise Breach(ErrorCode.FLOW_CONTROL_ERROR, "more data than was granted")
        self._granted -= size
        self.held += size
        stream = self.streams.get(number)
        ends = bool(flags & frames.END_STREAM)
        if size < _TINY and not ends:
            self._spend(patience.TINY_DATA, now)
        if stream is None or stream.ended_by_peer:
            if number > self.last_stream or not number:
                raise Breach(ErrorCode.PROTOCOL_ERROR, f"data on stream {number}, which was never opened")
            self._spend(patience.TINY_DATA, now)  # in flight when the call ended
            self._give_back(size)
            return
        if size > stream.granted:
            self._give_back(size)
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR, events)
            return
        stream.granted -= size
        stream.held += size
        data = _unpadded(flags, payload)
        stream.ended_by_peer = ends
        events.append(Received(stream, data, ends))
        if ends:
            self._forget_if_over(stream)

    def _settings(self, flags: int, number: int, payload: bytes, now: float) -> None:
        self._spend(patience.SETTINGS, now)
        if number or len(payload) % 6 or (flags & frames.ACK and payload):
            raise Breach(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS that are none")
        if flags & frames.ACK:
            return
        # The last of each wins; applying each in turn would let one frame walk all streams 2,000 times.
        values = dict(frames.SETTING.iter_unpack(payload))
        if values.get(frames.ENABLE_PUSH, 0) > 1:
            raise Breach(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        max_frame = values.get(frames.MAX_FRAME_SIZE, self._their_max_frame)
        if not frames.LEAST_MAX_FRAME <= max_frame < 1 << 24:
            raise Breach(ErrorCode.PROTOCOL_ERROR, f"a largest frame of {max_frame} bytes")
        self._their_max_frame = min(max_frame, _CHUNK)
        window = values.get(frames.INITIAL_WINDOW_SIZE, self._their_initial_window)
        if window > frames.LARGEST_WINDOW:
            raise Breach(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {window} bytes")
        change, self._their_initial_window = window - self._their_initial_window, window
        self.out.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        if change:
            for stream in self.streams.values():
                stream.window += change
                if stream.window > frames.LARGEST_WINDOW:
                    raise Breach(ErrorCode.FLOW_CONTROL_ERROR, "a window above 2 GiB")
                if stream.pending and stream.window > 0:
                    self._sendable[stream] = None
                elif stream.window <= 0:
                    self._sendable.pop(stream, None)
            self._pump()

    def _window_update(self, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        self._spend(patience.CONTROL, now)
        if len(payload) != 4:
            raise Breach(ErrorCode.FRAME_SIZE_ERROR, "a WINDOW_UPDATE that is none")
        size = frames.LONG.unpack(payload)[0] & frames.LARGEST_WINDOW
        if not number:
            self._window += size
            if not size or self._window > frames.LARGEST_WINDOW:
                raise Breach(ErrorCode.FLOW_CONTROL_ERROR, "a window above 2 GiB, or an update of nothing")
        else:
            stream = self.streams.get(number)
            if stream is None:
                if number > self.last_stream:
                    raise Breach(ErrorCode.PROTOCOL_ERROR, f"a window for stream {number}, which was never opened")
                return
            stream.window += size
            if not size or stream.window > frames.LARGEST_WINDOW:
                self._break(stream, ErrorCode.FLOW_CONTROL_ERROR, events)
                return
            if stream.pending and stream.window > 0:
                self._sendable[stream] = None
        self._pump()

    def _reset(self, number: int, payload: bytes, now: float, events: list[Event]) -> None:
        self._spend(patience.RESET, now)
        if len(payload) != 4 or not number:
            raise Breach(ErrorCode.FRAME_SIZE_ERROR, "a RST_STREAM that is none")
        if number > self.last_stream:
            raise Breach(ErrorCode.PROTOCOL_ERROR, f"a reset of stream {number}, which was never opened")
        stream = self.streams.get(number)
        if stream is not None:
            events.append(Gone(stream))
            self._forget(stream)

    def _break(self, stream: Stream, code: ErrorCode, events: list[Event]) -> None:
        events.append(Gone(stream))
        self.reset(stream, code)

    # ---- the owner's calls

    def release(self, stream: Stream, left: int) -> None:
        """Only that many of the stream's received bytes are still held: the peer may send the rest again.

        The end of a stream releases all of it.
        """
        size = stream.held - left
        if size <= 0:
            return
        stream.held = left
        self._give_back(size)
        if not stream.ended_by_peer and stream.id in self.streams and WINDOW - stream.granted - stream.held > _GRANT_AT:
            grant = WINDOW - stream.granted - stream.held
            stream.granted += grant
            self.out.append(frames.window_update(stream.id, grant))

    def _give_back(self, size: int) -> None:
        self.held -= size
        self._ungranted += size
        if self._ungranted > _GRANT_AT:
            self.out.append(frames.window_update(0, self._ungranted))
            self._granted += self._ungranted
            self._ungranted = 0

    def send_headers(self, stream: Stream, block: bytes, *, end: bool = False) -> None:
        """Send the answer's headers, as a block without compression state. With `end` they are the whole answer."""
        if stream.ended_by_us:
            return
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        self.out.append(frames.frame(frames.HEADERS, flags, stream.id, block))
        if end:
            self._we_end(stream)

    def send_data(self, stream: Stream, data: bytes, trailers: bytes | None = None) -> None:
        """Send a part of the answer, and with `trailers` its end; at once as far as the peer's windows allow."""
        if stream.ended_by_us:
            return
        size = len(data)
        if not stream.pending and size <= self._window and size <= stream.window and size <= self._their_max_frame:
            if size:
                self._window -= size
                stream.window -= size
                self.out.append(frames.head(size, frames.DATA, 0, stream.id))
                self.out.append(data)
            if trailers is not None:
                self._send_trailers(stream, trailers)
            return
        if size:
            stream.pending.append(memoryview(data))
            stream.pending_size += size
            self.queued += size
        if trailers is not None:
            stream.pending.append(_Trailers(trailers))
        if stream.window > 0:
            self._sendable[stream] = None
        self._pump()

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream in both directions."""
        if self.streams.get(stream.id) is stream:
            self.out.append(frames.reset(stream.id, code))
            self._forget(stream)

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Announce that no further streams will be served."""
        if not self.goes_away:
            self.goes_away = True
            self.out.append(frames.goaway(self.last_stream, code, reason))

    def ping(self) -> None:
        """Send a PING."""
        self.out.append(frames.frame(frames.PING, 0, 0, b"rocketle"))

    def _we_end(self, stream: Stream) -> None:
        stream.ended_by_us = True
        if not stream.ended_by_peer:
            # The answer is complete before the request: the rest of the request is not wanted (RFC 9113, 8.1).
            self.out.append(frames.reset(stream.id, ErrorCode.NO_ERROR))
        self._forget(stream)

    def _forget_if_over(self, stream: Stream) -> None:
        if stream.ended_by_us and stream.ended_by_peer:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.ended_by_us = stream.ended_by_peer = True
        if stream.held:
            self._give_back(stream.held)
            stream.held = 0
        self.streams.pop(stream.id, None)
        self._sendable.pop(stream, None)
        self.queued -= stream.pending_size
        stream.pending_size = 0
        stream.pending.clear()

    def _pump(self) -> None:
        """Send waiting data, one chunk per stream in turn, until a window is closed."""
        while self._sendable and self._window > 0:
            stream = next(iter(self._sendable))
            del self._sendable[stream]
            if self._send_some(stream):
                self._sendable[stream] = None

    def _send_some(self, stream: Stream) -> bool:
        """Send one frame, and the trailers if they are next, since they need no window. Returns whether the stream has
        more.

        Requires: data is first in the queue.
        """
        first = stream.pending[0]
        assert not isinstance(first, _Trailers)
        size = min(len(first), self._window, stream.window, self._their_max_frame)
        self.out.append(frames.head(size, frames.DATA, 0, stream.id))
        self.out.append(first[:size])
        if size == len(first):
            stream.pending.popleft()
        else:
            stream.pending[0] = first[size:]
        self._window -= size
        stream.window -= size
        stream.pending_size -= size
        self.queued -= size
        if size >= 1024:
            self._patience.earn(patience.SENT_DATA)
        if not stream.pending:
            return False
        following = stream.pending[0]
        if isinstance(following, _Trailers):
            self._send_trailers(stream, following.block)
            return False
        return stream.window > 0

    def _send_trailers(self, stream: Stream, block: bytes) -> None:
        self.out.append(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.id, block))
        self._patience.earn(patience.ANSWERED)
        self._we_end(stream)


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Breach(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]
