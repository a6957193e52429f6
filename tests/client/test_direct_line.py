"""Sends made in the calling thread, to a socket that the test answers itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from rocketlet.client.config import ProducerConfig
from rocketlet.client.sending.direct_line import DirectLine, DirectPath
from rocketlet.client.talking.route_cache import route_of
from rocketlet.client.talking.session import Session, World
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import CallTimeout, ConnectionLost
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.protocol.routing import BrokerData, TopicRouteData

LIMIT = 1 << 20


@contextmanager
def server(*turns: Callable[[socket.socket], object]) -> Iterator[str]:
    """Accepts connections one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for turn in turns:
                connected, _ = listening.accept()
                with connected:
                    turn(connected)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(10)


def answer(connected: socket.socket, *, opaque: int | None = None, byte_by_byte: bool = False) -> None:
    request = FrameDecoder().feed(connected.recv(65536))[0]
    frame = encode(Command(0, opaque=request.opaque if opaque is None else opaque, flag=1, ext={"msgId": "x"}))
    for part in [frame[n : n + 1] for n in range(len(frame))] if byte_by_byte else [frame]:
        connected.sendall(part)


def ask(line: DirectLine, seconds: float = 5.0) -> Command:
    opaque = line.next_opaque()
    return line.exchange(encode(Command(310, opaque=opaque)), opaque, seconds)


def test_an_answer_is_read_even_byte_by_byte() -> None:
    def serve(connected: socket.socket) -> None:
        answer(connected)
        answer(connected, byte_by_byte=True)

    with server(serve) as address:
        line = DirectLine(address, LIMIT)
        assert line.is_alive()
        assert ask(line).ext == {"msgId": "x"}
        assert line.is_alive()
        assert ask(line).ext == {"msgId": "x"}
        line.close()


def test_answers_to_other_requests_are_skipped() -> None:
    def serve(connected: socket.socket) -> None:
        request = FrameDecoder().feed(connected.recv(65536))[0]
        for opaque in (99, request.opaque):
            connected.sendall(encode(Command(0, opaque=opaque, flag=1, ext={"opaque": str(opaque)})))

    with server(serve) as address:
        line = DirectLine(address, LIMIT)
        assert ask(line).ext == {"opaque": "1"}
        line.close()


def test_a_timeout_and_a_closed_connection_are_distinguished() -> None:
    gone = threading.Event()
    with server(lambda connected: gone.wait(10), lambda connected: connected.recv(65536)) as address:
        line = DirectLine(address, LIMIT)
        with pytest.raises(CallTimeout):
            ask(line, 0.05)
        line.close()
        gone.set()
        line = DirectLine(address, LIMIT)
        with pytest.raises(ConnectionLost):
            ask(line)
        line.close()


@pytest.mark.parametrize("what", ["a frame that never ends", "answers that nobody asked for"])
def test_a_broker_that_keeps_talking_gains_no_time(what: str) -> None:
    def serve(connected: socket.socket) -> None:
        connected.recv(65536)
        unasked = encode(Command(0, opaque=99, flag=1))
        endless = (LIMIT - 4).to_bytes(4, "big") + (LIMIT - 8).to_bytes(4, "big")
        connected.sendall(unasked if "answers" in what else endless)
        with suppress(OSError):
            while True:
                connected.sendall(unasked if "answers" in what else b" ")
                ended.wait(0.01)

    ended = threading.Event()
    with server(serve) as address:
        line = DirectLine(address, LIMIT)
        with pytest.raises(CallTimeout):
            ask(line, 0.1)
        line.close()
        ended.set()


def test_lines_to_addresses_that_left_the_routes_are_closed() -> None:
    unused: Any = None
    session = Session(ProducerConfig(namesrv="127.0.0.1:9"), World(ip="127.0.0.1"))
    path, lines = DirectPath(session, ProducerConfig(), unused, unused), {}

    def wait_until_closed(connected: socket.socket) -> None:
        closed.append(connected.recv(1))

    closed: list[bytes] = []
    with server(wait_until_closed) as first, server(wait_until_closed) as second:
        for address in (first, second):
            data = TopicRouteData(brokerDatas=[BrokerData({0: address}, "a", "c")])
            session.routes.put(route_of("T", data))
            assert path._line(lines, address) is not None
            assert list(lines) == [address]
        lines[second].close()
    assert closed == [b"", b""]


def test_a_line_closed_meanwhile_is_noticed() -> None:
    closed = threading.Event()

    def close(connected: socket.socket) -> None:
        connected.close()
        closed.set()

    with server(close) as address:
        line = DirectLine(address, LIMIT)
        assert closed.wait(10)
        assert not line.is_alive()
        line.close()


@pytest.mark.parametrize("address", ["", "null", "127.0.0.1:99999", "a..b:10911", "x" * 64 + ":10911"])
def test_what_is_no_address_is_left_to_the_engine(address: str) -> None:
    unused: Any = None
    assert DirectPath(unused, ProducerConfig(), unused, unused)._line({}, address) is None
