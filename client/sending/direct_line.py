"""The shortest path for a thread that sends alone: its own write, its own read, no other thread in between.

A send through the engine costs a thread two hand-overs, each a wake-up through the kernel: 140 µs of CPU a send where
this takes 32, and a third to a half of the raw round trip's rate where this has 0.85 (one 1 KiB message in flight, on
loopback). From two threads on the engine is better, since it writes for all of them at once. So this is taken only
while nothing else of the producer is on its way, which also keeps the order of sends, and only for what needs nothing
but a frame and an answer: a known route, plain TCP, JSON headers, no signing, no fault table.

It makes one try. Anything but a clean "stored" goes to the pipeline, which alone has the rules for retries and errors.

Each address has a connection of its own for this, beside the engine's; brokers send no requests on it. One that the
broker has closed meanwhile is noticed before it is used, by a look that costs 0.5 µs.

Java: none
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic

from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import BadAnswer
from rocketlet.client.sending.lanes import results_of
from rocketlet.client.sending.queue_selection import choose
from rocketlet.client.sending.send import Answer, Send
from rocketlet.client.sending.send_result import SendStatus
from rocketlet.client.talking.session import Session
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import CallTimeout, ConnectionLost, RemotingError
from rocketlet.remoting.frame_codec import FrameDecoder
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.transport import split_address

_MAX_CONNECT = 1.0  # otherwise the engine dials, which can wait
_READ = 64 << 10
_timeval = struct.Struct("ll")


class DirectLine:
    """One connection, used by one thread at a time."""

    def __init__(self, address: str, frame_limit: int) -> None:
        """Raises OSError, and ValueError for what is no address."""
        self.address = address
        self._socket = socket.create_connection(split_address(address), _MAX_CONNECT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel keeps the time: Python's own time-out costs a poll for each call and two more to switch it.
        self._socket.settimeout(None)
        self._seconds = 0.0
        self._frames = FrameDecoder(frame_limit)
        self._opaques = count(1)

    def next_opaque(self) -> int:
        """The number of the next request."""
        return next(self._opaques) & 0x7FFFFFFF

    def is_alive(self) -> bool:
        """Whether the broker has neither closed it nor sent anything unexpected."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def exchange(self, frame: bytes, opaque: int, seconds: float) -> Command:
        """Send a request and wait for its answer. Raises ConnectionLost, CallTimeout, FrameError; then close it."""
        try:
            if seconds != self._seconds:
                self._wait_at_most(seconds)
            # The kernel's time-outs are for one call each, and the broker decides how many it takes.
            deadline = monotonic() + seconds
            sent = self._socket.send(frame)
            while sent < len(frame):
                _check(deadline)
                sent += self._socket.send(memoryview(frame)[sent:])
            while True:
                data = self._socket.recv(_READ)
                if not data:
                    raise ConnectionLost(f"{self.address} closed the connection")
                for answer in self._frames.feed(data):
                    if answer.opaque == opaque:
                        return answer
                _check(deadline)
        except BlockingIOError:
            raise CallTimeout(f"{self.address} did not answer within {seconds:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.address} was lost: {error}") from error

    def _wait_at_most(self, seconds: float) -> None:
        self._seconds = seconds
        whole_seconds, microseconds = divmod(max(1, int(seconds * 1_000_000)), 1_000_000)  # 0 would mean no time-out
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval.pack(whole_seconds, microseconds))

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def _check(deadline: float) -> None:
    if monotonic() > deadline:
        raise BlockingIOError


class DirectPath:
    """The direct lines of one producer."""

    def __init__(
        self,
        session: Session,
        config: ProducerConfig,
        now: Callable[[], float],
        continue_send: Callable[[Send, Answer], None],
    ) -> None:
        """`now` is the engine's clock; `continue_send` gives a try's end to the pipeline, from this thread."""
        self.usable = hasattr(socket, "MSG_DONTWAIT") and not (
            config.tls or config.access_key or config.latency_faults or config.header_type or config.linger
        )
        self._session = session
        self._config = config
        self._now = now
        self._continue_send = continue_send
        # The lines by address, while no thread is sending. A thread takes them out and puts them back; with Ctrl-C in
        # between they are lost, and the engine sends from then on, where a lock would stay locked.
        self._unused: SimpleQueue[dict[str, DirectLine]] = SimpleQueue()
        self._unused.put({})

    def send(self, send: Send) -> bool:
        """Send in this thread, unless the send needs more than this offers; False: nothing has happened yet."""
        try:
            lines = self._unused.get_nowait()
        except Empty:
            return False
        try:
            return self._send(lines, send)
        finally:
            self._unused.put(lines)

    def _send(self, lines: dict[str, DirectLine], send: Send) -> bool:
        route = self._session.routes.get(send.topic)
        if route is None or not route.writable or send.select is not None or send.oneway:
            return False
        queue = send.fixed if send.fixed is not None else choose(route.writable, route.next_turn())
        address = self._session.routes.master(queue.broker_name)
        line = None if address is None else self._line(lines, self._session.brokers.vip(address))
        if line is None:
            return False
        now = self._now()
        send.began = send.tried_at = now
        send.deadline = now + send.timeout
        send.queue = queue
        send.tries = 1
        answer = self._exchange(line, send)
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            try:
                (result,) = results_of((send,), SendStatus.SEND_OK, answer, self._config.namespace)
            except BadAnswer:
                pass  # the pipeline decides on it
            else:
                send.settle(result, None)
                return True
        self._continue_send(send, answer)
        return True

    def _exchange(self, line: DirectLine, send: Send) -> Answer:
        opaque = line.next_opaque()
        frame = send.template.frame(opaque, send.parts(send.text, send.body))
        seconds = send.timeout
        if self._config.try_timeout is not None:
            seconds = min(seconds, self._config.try_timeout)
        try:
            return line.exchange(frame, opaque, seconds)
        except BaseException as error:  # even Ctrl-C: the answer would be taken for that of the next send
            line.close()
            if isinstance(error, RemotingError):
                return error
            raise

    def _line(self, lines: dict[str, DirectLine], address: str) -> DirectLine | None:
        line = lines.get(address)
        if line is not None:
            if line.is_alive():
                return line
            line.close()
        self._forget_vanished(lines)
        try:
            line = lines[address] = DirectLine(address, self._config.max_frame)
        except (OSError, ValueError):  # the latter for what is no address, as a route may have it: the engine tells it
            return None
        return line

    def _forget_vanished(self, lines: dict[str, DirectLine]) -> None:
        """Close those to addresses that are in no route any more, now that there may be one more."""
        if lines:
            known = set(map(self._session.brokers.vip, self._session.routes.masters()))
            for address in lines.keys() - known:
                lines.pop(address).close()

    def close(self) -> None:
        """Close all lines. Waits for a send that is using one, as long as one may take."""
        self.usable = False
        with suppress(Empty):
            for line in self._unused.get(timeout=self._config.send_timeout).values():
                line.close()
