"""Sends made in the calling thread, to a socket that the test answers itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rocketlet.client.config import ProducerConfig
from rocketlet.client.sending.direct_line import DirectLine, DirectPath
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import CallTimeout, ConnectionLost
from rocketlet.remoting.frame_codec import FrameDecoder, encode

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
