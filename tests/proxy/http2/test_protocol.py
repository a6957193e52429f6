"""The server's side of HTTP/2: events from bytes, whole and in pieces, and hostile peers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlet.proxy.http2 import frames, patience
from rocketlet.proxy.http2.frames import ErrorCode
from rocketlet.proxy.http2.protocol import (
    MAX_HEADER_BYTES,
    OUR_MAX_FRAME,
    WINDOW,
    Breach,
    Event,
    Gone,
    Http2Server,
    Opened,
    Received,
)
from tests.support.properties import examples

HEADERS = [(":method", "POST"), (":path", "/a/b"), ("x-mq-client-id", "c")]
GREETING = frames.PREFACE + frames.settings({})


def block() -> bytes:
    return Encoder().encode(HEADERS)


def opening(number: int, flags: int = frames.END_HEADERS) -> bytes:
    return frames.frame(frames.HEADERS, flags, number, block())


def data(number: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, number, payload)


def greeted() -> Http2Server:
    server = Http2Server(0.0)
    assert server.receive(GREETING, 0.0) == []
    server.out.clear()
    return server


def written(server: Http2Server) -> list[tuple[int, int, int, bytes]]:
    """The frames in `out`: kind, flags, stream, payload."""
    raw = b"".join(server.out)
    server.out.clear()
    found = []
    while raw:
        end = 9 + int.from_bytes(raw[:3], "big")
        found.append((raw[3], raw[4], int.from_bytes(raw[5:9], "big"), raw[9:end]))
        raw = raw[end:]
    return found


def plain(events: list[Event]) -> Iterator[tuple[str, int, bytes, bool]]:
    """Events as plain values; data in several pieces is joined."""
    bodies: dict[int, bytes] = {}
    for event in events:
        number = event.stream.id
        if isinstance(event, Opened):
            yield "opened", number, b"", event.ended
        elif isinstance(event, Received):
            bodies[number] = bodies.get(number, b"") + event.data
            if event.ended:
                yield "body", number, bodies.pop(number), True
        else:
            yield "gone", number, b"", True


def test_a_preface_is_answered_with_our_limits() -> None:
    server = Http2Server(0.0)
    server.receive(GREETING, 0.0)
    kinds = [(kind, flags, number) for kind, flags, number, _ in written(server)]
    assert kinds == [(frames.SETTINGS, 0, 0), (frames.WINDOW_UPDATE, 0, 0), (frames.SETTINGS, frames.ACK, 0)]


def test_a_request_yields_its_headers_and_body() -> None:
    server = greeted()
    events = server.receive(opening(1) + data(1, b"abc") + data(1, b"def", end=True), 0.0)
    assert list(plain(events)) == [("opened", 1, b"", False), ("body", 1, b"abcdef", True)]
    assert isinstance(events[0], Opened)
    assert [(name.decode(), value.decode()) for name, value in events[0].headers] == HEADERS


CONVERSATION = (
    GREETING
    + opening(1)
    + data(1, b"x" * 300)
    + opening(3, frames.END_HEADERS | frames.END_STREAM)
    + frames.frame(frames.PING, 0, 0, b"12345678")
    + frames.frame(frames.HEADERS, frames.HAS_PRIORITY, 5, bytes(5) + block()[:4])
    + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 5, block()[4:])
    + frames.frame(frames.DATA, frames.PADDED, 5, b"\x03" + b"padded" + bytes(3))
    + frames.reset(3, ErrorCode.CANCEL)
    + data(1, b"y", end=True)
    + frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 5, block())  # trailers
    + frames.frame(0x77, 0, 0, b"of a later standard")
)


@given(st.lists(st.integers(1, 200), max_size=20))
def test_events_do_not_depend_on_chunking(sizes: list[int]) -> None:
    whole = list(plain(Http2Server(0.0).receive(CONVERSATION, 0.0)))
    server = Http2Server(0.0)
    events: list[Event] = []
    rest = CONVERSATION
    for size in [*sizes, len(rest)]:
        events += server.receive(rest[:size], 0.0)
        rest = rest[size:]
    assert list(plain(events)) == whole
    assert ("body", 5, b"padded", True) in whole
    assert ("body", 1, b"x" * 300 + b"y", True) in whole
    assert ("gone", 3, b"", True) in whole


def test_bodies_are_sent_within_the_window_in_turns() -> None:
    server = Http2Server(0.0)
    small = frames.settings({frames.INITIAL_WINDOW_SIZE: 10})
    events = server.receive(frames.PREFACE + small + opening(1) + opening(3), 0.0)
    one, three = (event.stream for event in events if isinstance(event, Opened))
    written(server)
    server.send_data(one, b"a" * 25, b"end")
    server.send_data(three, b"b" * 5, b"end")
    assert [(kind, number, payload) for kind, _, number, payload in written(server)] == [
        (frames.DATA, 1, b"a" * 10),
        (frames.DATA, 3, b"b" * 5),
        (frames.HEADERS, 3, b"end"),
        (frames.RST_STREAM, 3, bytes(4)),  # the request was incomplete: the rest of it is not wanted
    ]
    assert server.queued == 15
    server.receive(frames.window_update(1, 100), 0.0)
    assert [(kind, payload) for kind, _, _, payload in written(server)][:2] == [
        (frames.DATA, b"a" * 15),
        (frames.HEADERS, b"end"),
    ]
    assert server.queued == 0
    assert not server.streams


def test_the_connection_window_limits_all_streams_together() -> None:
    server = Http2Server(0.0)
    events = server.receive(GREETING + opening(1) + opening(3), 0.0)
    one, three = (event.stream for event in events if isinstance(event, Opened))
    written(server)
    server.send_data(one, b"a" * 40_000)
    server.send_data(three, b"b" * 40_000)
    sent = sum(len(payload) for kind, _, _, payload in written(server) if kind == frames.DATA)
    assert sent == frames.INITIAL_WINDOW
    assert server.queued == 80_000 - sent
    server.receive(frames.window_update(0, 80_000), 0.0)
    assert server.queued == 0


def test_a_smaller_window_set_later_stops_a_body_in_progress() -> None:
    server = Http2Server(0.0)
    events = server.receive(GREETING + opening(1), 0.0)
    (stream,) = (event.stream for event in events if isinstance(event, Opened))
    server.send_data(stream, b"a" * 100)
    server.receive(frames.settings({frames.INITIAL_WINDOW_SIZE: 50}), 0.0)
    assert stream.window == -50
    server.send_data(stream, b"b" * 10)
    assert server.queued == 10
    server.receive(frames.settings({frames.INITIAL_WINDOW_SIZE: 200}), 0.0)
    assert server.queued == 0


def test_window_is_granted_again_when_data_is_released() -> None:
    server = greeted()
    (event,) = server.receive(opening(1), 0.0)
    stream = event.stream
    sent = 0
    while sent < WINDOW // 4:
        server.receive(data(1, bytes(OUR_MAX_FRAME)), 0.0)
        sent += OUR_MAX_FRAME
    assert server.held == sent
    assert written(server) == []
    server.release(stream, 0)
    assert server.held == 0
    updates = {number: int.from_bytes(payload, "big") for _, _, number, payload in written(server)}
    assert updates == {0: sent, 1: sent}


def test_the_end_of_a_stream_releases_its_data() -> None:
    server = greeted()
    server.receive(opening(1) + data(1, bytes(1000)) + frames.reset(1, 8), 0.0)
    assert server.held == 0
    server.receive(data(1, bytes(1000)), 0.0)  # was in flight
    assert server.held == 0


def test_more_data_than_granted_ends_the_connection() -> None:
    server = greeted()
    server.receive(opening(1), 0.0)
    with pytest.raises(Breach, match="more data than was granted"):
        for _ in range(WINDOW // OUR_MAX_FRAME + 1):
            server.receive(data(1, bytes(OUR_MAX_FRAME)), 0.0)


def test_refused_streams_keep_the_header_tables_in_sync() -> None:
    server = Http2Server(0.0, most_streams=2)
    encoder = Encoder()
    raw = GREETING
    for number in (1, 3, 5):
        head = encoder.encode([*HEADERS, ("number", str(number))])
        raw += frames.frame(frames.HEADERS, frames.END_HEADERS, number, head)
    events = server.receive(raw, 0.0)
    assert [event.stream.id for event in events] == [1, 3]
    assert (frames.RST_STREAM, 0, 5, b"\0\0\0\x07") in written(server)
    server.receive(frames.reset(1, 8), 0.0)
    head = encoder.encode([*HEADERS, ("number", "5")])  # refers to an entry added by the refused one
    (event,) = server.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 7, head), 0.0)
    assert isinstance(event, Opened)
    assert (b"number", b"5") in event.headers


FLOODS = {
    "pings": lambda n: frames.frame(frames.PING, 0, 0, bytes(8)),
    "settings": lambda n: frames.settings({frames.INITIAL_WINDOW_SIZE: n % 100}),
    "priorities": lambda n: frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
    "window updates": lambda n: frames.window_update(0, 1),
    "rapid resets": lambda n: opening(2 * n + 1) + frames.reset(2 * n + 1, ErrorCode.CANCEL),
    "empty data": lambda n: (opening(1) if n == 0 else b"") + data(1, b""),
    "tiny data": lambda n: (opening(1) if n == 0 else b"") + data(1, b"x"),
    "unknown frames": lambda n: frames.frame(0x42, 0, 0, b""),
    "continuations": lambda n: (opening(1, 0) if n == 0 else b"") + frames.frame(frames.CONTINUATION, 0, 1, b""),
    "data to what is over": lambda n: (opening(1) + frames.reset(1, 8) if n == 0 else b"") + data(1, bytes(100)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_its_connection_at_little_cost(flood: str) -> None:
    server = greeted()
    with pytest.raises(Breach) as breach:
        for number in range(10_000):
            server.receive(FLOODS[flood](number), 0.0)
    assert breach.value.code is ErrorCode.ENHANCE_YOUR_CALM
    assert number <= patience.TOKENS
    assert sum(map(len, server.out)) < 200_000
    kind, _, _, payload = written(server)[-1]
    assert (kind, payload[4:8]) == (frames.GOAWAY, b"\0\0\0\x0b")


@pytest.mark.slow
def test_pings_and_window_updates_with_each_message_are_no_flood() -> None:
    server = greeted()
    server.receive(frames.window_update(0, 1 << 30), 0.0)
    for number in range(1, 8_001, 2):
        (opened, _) = server.receive(opening(number) + data(number, b"request", end=True), 0.0)
        server.send_data(opened.stream, b"answer", b"end")
        pings = frames.frame(frames.PING, 0, 0, bytes(8)) * 2
        server.receive(pings + frames.window_update(0, 100) * 2, 0.0)
        server.out.clear()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 2, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (frames.head(OUR_MAX_FRAME + 1, frames.DATA, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.CONTINUATION, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (opening(1, 0) + frames.frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (opening(1, 0) + frames.frame(frames.CONTINUATION, 0, 3, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, 0), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.window_update(0, frames.LARGEST_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings({frames.MAX_FRAME_SIZE: 1}), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.reset(9, 8), ErrorCode.PROTOCOL_ERROR),
        (data(9, b"x"), ErrorCode.PROTOCOL_ERROR),
        (opening(1) + frames.frame(frames.DATA, frames.PADDED, 1, b"\x09short"), ErrorCode.PROTOCOL_ERROR),
        (
            opening(1, 0) + frames.frame(frames.CONTINUATION, 0, 1, bytes(MAX_HEADER_BYTES)),
            ErrorCode.ENHANCE_YOUR_CALM,
        ),
    ],
)
def test_a_protocol_violation_ends_the_connection(sent: bytes, code: ErrorCode) -> None:
    server = greeted()
    with pytest.raises(Breach) as breach:
        server.receive(sent, 0.0)
    assert breach.value.code is code
    assert written(server)[-1][0] == frames.GOAWAY


def test_headers_that_expand_too_much_end_the_connection() -> None:
    server = greeted()
    bomb = Encoder().encode([("x", "y" * 4000)]) + b"\xbe" * 8000  # an entry of the table, 8,000 times
    with pytest.raises(Breach) as breach:
        server.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, bomb), 0.0)
    assert breach.value.code is ErrorCode.COMPRESSION_ERROR


def test_a_peer_that_does_not_speak_http2_is_told() -> None:
    with pytest.raises(Breach, match="no HTTP/2 preface"):
        Http2Server(0.0).receive(b"GET / HTTP/1.1\r\n", 0.0)


def test_a_window_that_overflows_ends_its_stream_only() -> None:
    server = greeted()
    events = server.receive(opening(1) + opening(3) + frames.window_update(1, frames.LARGEST_WINDOW), 0.0)
    assert [type(event) for event in events] == [Opened, Opened, Gone]
    assert list(server.streams) == [3]


FRAMES = st.builds(
    frames.frame,
    st.integers(0, 11),
    st.integers(0, 255),
    st.integers(0, 9) | st.integers(0, 1 << 31),
    st.binary(max_size=64)
    | st.just(block())
    | st.integers(0, 1 << 32).map(lambda n: (n & 0xFFFFFFFF).to_bytes(4, "big")),
)


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=40), st.binary(max_size=30))
@settings(max_examples=examples(200))
def test_any_frames_yield_events_or_a_protocol_error(sent: list[bytes], rest: bytes) -> None:
    server = greeted()
    try:
        for one in [*sent, rest]:
            for event in server.receive(one, 0.0):
                if isinstance(event, Opened) and event.stream.id % 4 == 1:
                    server.send_headers(event.stream, b"\x88")
                    server.send_data(event.stream, bytes(300), b"end")
    except Breach:
        return
    assert server.held == sum(stream.held for stream in server.streams.values()) >= 0
    assert server.queued == sum(stream.pending_size for stream in server.streams.values()) >= 0
