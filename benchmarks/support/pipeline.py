"""Keeps N requests in flight on one or more connections and counts the answers, with as little work as possible.

Plain blocking sockets: on two cores the driver must not cost more than what it measures.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

from benchmarks.support.cpu import CpuMeter, listening_pid

RECEIVE = 1 << 18
ONE_BY_ONE = 14
"""In flight: so few sends that a broker serves none of them together."""
FLUSH_OR_REPLICA_LATE = (10, 11, 12)  # the message is stored nevertheless


class Refused(Exception):
    """The server answered a request with an error."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one run of a load."""

    requests: int
    seconds: float
    server_cpu: float
    received: int

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds

    @property
    def cpu_micros(self) -> float:
        """Microseconds of the server's CPU for each request."""
        return self.server_cpu / self.requests * 1e6


def connect(port: int) -> socket.socket:
    """A connection to a server on this machine."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def pipelined(port: int, request: bytes, in_flight: int, count: int) -> Measured:
    """Send the same request `count` times with `in_flight` in flight on one connection.

    The first answer is checked: a load of errors would be a fast load.
    """
    pid = listening_pid(port)
    if pid is None:
        raise ConnectionError(f"nothing listens on 127.0.0.1:{port}")
    with connect(port) as connection:
        step = max(1, in_flight // 2)
        burst, sent, answered, rest, received = request * step, 0, 0, b"", 0
        check_answer(exchange(connection, request))
        meter, start_time = CpuMeter(pid).start(), time.perf_counter()
        while answered < count:
            while sent - answered <= in_flight - step and sent < count:
                connection.sendall(burst)
                sent += step
            chunk = connection.recv(RECEIVE)
            if not chunk:
                raise ConnectionError(f"127.0.0.1:{port} closed the connection after {answered} answers")
            received += len(chunk)
            rest += chunk
            at = 0
            while len(rest) - at >= 4 and len(rest) - at - 4 >= (size := int.from_bytes(rest[at : at + 4], "big")):
                at += 4 + size
                answered += 1
            rest = rest[at:]
        return Measured(answered, time.perf_counter() - start_time, meter.read(), received)


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """One request and its whole answer."""
    connection.sendall(request)
    size = int.from_bytes(_exactly(connection, 4), "big")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        chunk = connection.recv(count - len(parts))
        if not chunk:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        parts += chunk
    return bytes(parts)


def check_answer(answer: bytes) -> None:
    """Raise if the answer is an error; `answer` is a frame without its length."""
    word = int.from_bytes(answer[:4], "big")
    header = answer[4 : 4 + (word & 0xFFFFFF)]
    if word >> 24 == 1:
        code = struct.unpack_from(">h", header)[0]
    else:
        from rocketlet.remoting.command import HeaderType
        from rocketlet.remoting.frame_codec import decode_header

        code = decode_header(HeaderType(word >> 24), header).code
    if code != 0 and code not in FLUSH_OR_REPLICA_LATE:
        raise Refused(f"answered with code {code}: {header!r}")
