"""One connection, the same at both ends: requests and answers go both ways at once, on one stream.

Two tasks: one reads and handles what it reads, one writes what could not be written at once. The reader passes each
chunk to its `Turn` (`dispatch.py`), which runs the handlers; their answers, and whatever else is sent meanwhile,
collect in `out` and leave in one write at the end of the turn. Work that no answer waits for (`Turn.finish`) comes
after that write. A send outside a turn wakes the writer, which runs after every task that is due now, so their sends
leave together too.

Invariants: `opaque` numbers are unique among our pending calls. A call that ends, however it ends, removes its entry.
After `closed` nothing is sent and no call waits. A send beyond a named limit raises TooManyRequests without sending
anything.

Backpressure: a server's connection stops reading, if necessary in the middle of a chunk, while unsent answers exceed
its high-water mark. Answers of several buffers (messages are slices of the log) stay slices until they can be written,
so a peer that asks and does not read costs no copies. A client's connection never stops reading, or both sides could
wait for the other to read; there calls wait before they send, and a peer that asks and does not read is left.

Java: remoting/netty/NettyRemotingAbstract.java, ResponseFuture.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import outcome
import trio
from trio.lowlevel import Abort

from rocketlet.remoting.command import ONEWAY, Command, HeaderType
from rocketlet.remoting.errors import CallTimeout, ConnectionLost, FrameError, RemotingError, TooManyRequests
from rocketlet.remoting.frame_codec import Buffer, ReceiveBuffer, encode
from rocketlet.remoting.hooks import ClientHook
from rocketlet.remoting.peers import UNSENT_WHEN_SHORT, Peers
from rocketlet.remoting.request_codes import request_name
from rocketlet.remoting.transport import LARGEST_READ, ByteStream, host_of

log = logging.getLogger("rocketlet.remoting.connection")

OnAnswer = Callable[[Command | RemotingError], None]

# One read: 200 sends of 1 KiB. A turn of that size takes 3 ms, which is how long others may have to wait for theirs.
READ_SIZE = LARGEST_READ
# A peer whose sends wait for the disk or for replicas is read again when they are answered, or after this: 64 threads
# that wait for their answers then bring 30 sends a turn instead of 17, and each turn is a flush or a round of replicas.
GATHER_SECONDS = 0.002
# Answers are joined for one write up to this size; a larger join would only create waiting copies.
_JOINED = 1 << 20
# Answers that the peer of a connection that does not stop reading may leave unread.
_MOST_UNREAD = 32 << 20
_OPAQUE_MASK = 0x7FFFFFFF


class Turn(Protocol):
    """Handles received bytes."""

    def turn(self, connection: Connection, data: bytes) -> tuple[int, int, FrameError | None]:
        """Handle all complete frames. Returns where the rest begins, how many bytes it needs to be a frame, and what is
        wrong with it.

        A need of 0: the rest begins with a complete frame, left for the next turn because this one has run long enough.
        """

    def received(self, connection: Connection, size: int) -> FrameError | None:
        """That many bytes of an incomplete frame have arrived. Returns what is wrong with that."""

    def finish(self) -> None:
        """Run the turn's work that follows its answers, before anything else is read."""

    def answer(self, request: Any, answer: Any) -> list[Buffer]:
        """The buffers of an answer (a handler's Request and Answer) to a request that is not in progress."""

    def answer_later(self, request: Any, answer: Any) -> list[Buffer]:
        """The buffers of an answer (a handler's Request and Answer) given after the turn that read the request."""

    def answer_all_later(self, answers: Sequence[tuple[Any, Any]]) -> list[Buffer]:
        """`answer_later` of one or more requests of one connection."""

    def release(self, connection: Connection) -> None:
        """The connection has closed, and all calls waiting on it have failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a connection, each with the name of the setting it comes from."""

    oneway: int
    oneway_setting: str
    calls: int
    calls_setting: str
    unsent_high: int
    unsent_low: int
    stops_reading: bool  # at unsent_high; else calls wait
    peers: Peers = field(default_factory=Peers)  # of a server: the counts over all its connections


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """A snapshot."""

    calls: int
    in_flight: int
    unsent: int
    received_at: float
    sent_at: float


class Connection:
    """See the module. `run` is called once, by the creator; everything else by any task, until it is closed."""

    def __init__(
        self,
        stream: ByteStream,
        turn: Turn,
        limits: Limits,
        number: int = 0,
        hooks: Sequence[ClientHook] = (),
        header_type: HeaderType | None = None,
    ) -> None:
        self.id = number
        self.peer = stream.peer
        self.host = host_of(stream.peer)
        # The names in a TLS peer's verified certificate.
        self.certified_names: tuple[str, ...] = getattr(stream, "certified_names", ())
        self.local = stream.local
        self.closed = False
        # Why it ended, if not in order. The error itself would keep the frames of its traceback, and with them
        # requests, which refer to this connection and are none of the garbage collector's: all would stay for good.
        self.failure = ""
        self.unheard = ""
        """What may be the reason if it ends before anything has arrived."""
        self.header_type = header_type or HeaderType.JSON
        self._learns_header_type = header_type is None
        self.attributes: dict[str, Any] = {}
        self.out: list[Buffer] = []
        self.gathered = 0  # bytes in `out`, without ready-made answers, which are no larger than their requests
        self.in_flight = 0
        self.held_size = 0  # bytes of the requests in progress
        self.receiving = 0  # bytes of an incomplete long frame
        self.in_flight_by_family: dict[Any, int] = {}
        self.received_at = self.sent_at = trio.current_time()
        self._stream = stream
        self._turn = turn
        self._limits = limits
        self._hooks = hooks
        self._in_turn = False
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._unsent_answers = 0  # bytes of answers that joined `unsent` since that was empty
        self._counted = 0  # of `unsent`, in what all peers together have unread
        self._oneway_waiting = 0
        self._next_opaque = 0
        self._calls: dict[int, trio.lowlevel.Task | OnAnswer] = {}
        self._writer: trio.lowlevel.Task | None = None
        self._gathers = False
        self._room = trio.lowlevel.ParkingLot()
        self._reading = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._draining = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._calls)} calls, {self.unsent} bytes unsent"
        return f"<Connection {self.id} {self.local} - {self.peer}: {state}>"

    @property
    def last_active(self) -> float:
        """The time of the last traffic in either direction, by trio's clock."""
        return max(self.received_at, self.sent_at)

    def statistics(self) -> ConnectionStatistics:
        """Counts of what is waiting here."""
        return ConnectionStatistics(len(self._calls), self.in_flight, self.unsent, self.received_at, self.sent_at)

    @property
    def unsent(self) -> int:
        """Bytes waiting to be written."""
        return self._unsent_size + self.gathered

    @property
    def is_congested(self) -> bool:
        """Whether unsent bytes exceed the high-water mark."""
        unsent, limits = self._unsent_size + self.gathered, self._limits
        return unsent > limits.unsent_high or (
            unsent > UNSENT_WHEN_SHORT and limits.peers.lacks_memory_for(unsent - self._counted)
        )

    # -- lifetime

    async def run(self, first: bytes = b"") -> None:
        """Serve until either side closes. `first`: bytes already read. Never raises an error caused by the peer."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self.closed:
                    return
                nursery.start_soon(self._write_rest)
                with self._reading:
                    await self._read(first)
                if self._draining:
                    await self._wait_until_idle()
                nursery.cancel_scope.cancel()
        finally:
            self._end()
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    def close(self, failure: str = "") -> None:
        """Close it now; unsent bytes are lost. `run` returns soon after."""
        self.failure = self.failure or failure
        if not self.closed:
            self._end()
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    def drain(self) -> None:
        """Stop reading; `run` returns when requests in progress have been answered and the answers written."""
        self._draining = True
        self._reading.cancel()

    def start_task(self, function: Callable[..., Any], *args: Any) -> None:
        """Run an async function until the connection ends. Requires: called from within its turn."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._turn.release(self)
        reasons = [reason for reason in (self.failure, self.unheard) if reason]
        error = ConnectionLost(": ".join([f"the connection to {self.peer} was lost", *reasons]))
        calls, self._calls = self._calls, {}
        for waiting in calls.values():
            if isinstance(waiting, trio.lowlevel.Task):
                trio.lowlevel.reschedule(waiting, outcome.Error(error))
            else:
                waiting(error)
        self.out.clear()
        self._unsent.clear()
        self._unsent_size = self.gathered = 0
        self._count_unsent()
        self._room.unpark_all()

    # -- reading

    async def _read(self, chunk: bytes) -> None:
        buffer = ReceiveBuffer()
        stops_reading = self._limits.stops_reading
        try:
            while True:
                data = buffer.feed(chunk) if chunk else None
                if data is None and (error := self._turn.received(self, len(buffer))) is not None:
                    raise error
                while data is not None:
                    self._in_turn = True
                    rest, need, error = self._turn.turn(self, data)
                    self._in_turn = False
                    self._flush()
                    self._turn.finish()
                    if error is not None:
                        raise error
                    if not stops_reading and (unread := self._unsent_answers + self.gathered) > _MOST_UNREAD:
                        raise FrameError(f"more requests than it reads answers to, which have {unread} bytes")
                    while self.is_congested and stops_reading:
                        await self._room.park()
                    if need:
                        buffer.keep(data, rest, need)
                        data = None
                    else:
                        await trio.lowlevel.checkpoint()
                        data = data[rest:]
                if self._gathers:
                    await self._wait_for_answers()
                chunk = await self._stream.receive_some(READ_SIZE)
                if not chunk:
                    break
                self.received_at = trio.current_time()
                self.unheard = ""
        except FrameError as error:
            self.failure = str(error)
            if self._limits.peers.may_log(self.host, trio.current_time()):
                log.warning("%s sent %s; its connection is closed", self.peer, self.failure)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.failure = _reason(error)
            log.info("the connection to %s broke: %s", self.peer, self.failure)
        else:
            if len(buffer):
                log.info("%s closed its connection inside a frame", self.peer)

    def gather(self) -> None:
        """Let what the peer sends gather until `answer_together`, for a moment at most."""
        self._gathers = True

    async def _wait_for_answers(self) -> None:
        with trio.move_on_after(GATHER_SECONDS):
            while self._gathers and not self.closed:
                await self._room.park()
        self._gathers = False

    def peer_speaks(self, header_type: int) -> None:
        """The peer has sent a request in this header type, so it can read it. C++ and Node clients read only JSON."""
        if self._learns_header_type:
            self.header_type = HeaderType(header_type)

    # -- writing

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send one or more complete frames, with whatever else is due. No effect once closed."""
        if self.closed:
            return
        self.out.extend(buffers)
        if not self._in_turn:
            self._wake_writer()

    def _flush(self) -> None:
        """Write what has collected; the writer gets what the socket does not take at once."""
        if not self.out or self.closed:
            return
        answers = self.gathered
        self._write_some()
        self._unsent_answers = self._unsent_answers + answers - self.gathered if self._unsent else 0
        self._count_unsent()

    def _write_some(self) -> None:
        if self.gathered <= _JOINED:
            data = b"".join(self.out)
            self.out = []
            self.gathered = 0
        elif self._unsent:
            return  # the writer is busy with them, and takes more when they are written
        else:
            data = self._take_some()
            self._wake_writer()
        self._oneway_waiting = 0
        sent = 0
        if not self._unsent:
            try:
                sent = self._stream.send_now(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the writer gets the same error, and closes the connection when no call is being made
            if sent:
                self.sent_at = trio.current_time()
        if sent < len(data):
            self._unsent.append(data[sent:] if sent else data)
            self._unsent_size += len(data) - sent
            self._wake_writer()

    def _count_unsent(self) -> None:
        unsent = self._unsent_size + self.gathered
        self._limits.peers.unread += unsent - self._counted
        self._counted = unsent

    def _take_some(self) -> bytes:
        """The first buffers that are due, up to about _JOINED bytes."""
        size = count = 0
        while count < len(self.out) and size < _JOINED:
            size += len(self.out[count])
            count += 1
        data = b"".join(self.out[:count])
        del self.out[:count]
        self.gathered = max(self.gathered - size, 0) if self.out else 0
        return data

    async def _write_rest(self) -> None:
        try:
            while True:
                self._flush()
                if self._room and self.unsent <= self._limits.unsent_low:
                    self._room.unpark_all()
                if self._unsent:
                    data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
                    self._unsent = [data]
                    await self._stream.send_all(data)
                    self.sent_at = trio.current_time()
                    self._unsent_size -= len(data)
                    self._count_unsent()
                    del self._unsent[0]
                    if not self._unsent:
                        self._unsent_answers = 0
                elif self.out and not self.closed:
                    await trio.lowlevel.checkpoint()  # the peer reads as fast as we write, and other tasks are waiting
                else:
                    if self._draining:
                        self._room.unpark_all()
                    await self._sleep_until_woken()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(_reason(error))

    async def _sleep_until_woken(self) -> None:
        self._writer = trio.lowlevel.current_task()

        def abort(_: Any) -> Abort:
            self._writer = None
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake_writer(self) -> None:
        if self._writer is not None:
            trio.lowlevel.reschedule(self._writer)
            self._writer = None

    async def _wait_until_idle(self) -> None:
        """Wait until everything in progress is answered, and the answers are written."""
        while (self.in_flight or self.out or self._unsent) and not self.closed:
            await self._room.park()

    # -- calls

    async def call(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer. Raises CallTimeout, ConnectionLost, TooManyRequests.

        A cancelled call leaves nothing behind; the peer may still carry it out, and its answer is dropped.
        """
        frame = self._frame_of(command)
        answer = await self.call_frame(command.opaque, frame, timeout, command.code)
        for hook in self._hooks:
            hook.after(self.peer, command, answer)
        return answer

    def call_soon(self, command: Command, on_answer: OnAnswer) -> int:
        """`call` without a task, like `call_frame_soon`. Returns the opaque, by which to `forget` it."""
        frame = self._frame_of(command)

        def answered(answer: Command | RemotingError) -> None:
            if isinstance(answer, Command):
                for hook in self._hooks:
                    hook.after(self.peer, command, answer)
            on_answer(answer)

        self.call_frame_soon(command.opaque, frame, answered if self._hooks else on_answer)
        return command.opaque

    def _frame_of(self, command: Command) -> bytes:
        command.opaque = self.take_opaque()
        command.flag = 0
        command.header_type = self.header_type
        self.sign(command)
        return encode(command)

    def take_opaque(self) -> int:
        """The number of the next call, for callers that encode frames themselves: see `call_frame`."""
        while True:
            self._next_opaque = opaque = (self._next_opaque + 1) & _OPAQUE_MASK
            if opaque not in self._calls:
                return opaque

    async def call_frame(self, opaque: int, frame: Buffer, timeout: float, code: int = 0) -> Command:
        """`call` with a ready-made frame, of the connection's header type, that carries `opaque`. No hooks run."""
        limits = self._limits
        if len(self._calls) >= limits.calls:
            raise TooManyRequests(
                f"{len(self._calls)} calls to {self.peer} wait for answers, {limits.calls_setting} allows no more"
            )
        with trio.move_on_after(timeout):
            while self._unsent_size > limits.unsent_high and not limits.stops_reading:
                await self._room.park()
            self._check_open()
            self.out.append(frame)
            if not self._in_turn:
                if self._calls:
                    self._wake_writer()
                else:
                    self._flush()  # nothing to wait for: saves a task switch if one call follows another
            return await self._answer_to(opaque)
        raise CallTimeout(f"{self.peer} did not answer {request_name(code)} within {timeout:g} s")

    def call_frame_soon(self, opaque: int, frame: Buffer, on_answer: OnAnswer) -> None:
        """`call_frame` without a task: `on_answer` gets the answer, or a ConnectionLost instead.

        It is called once, from within a turn, and must not wait. There is no timeout: a caller that wants one calls
        `forget`. Raises ConnectionLost, TooManyRequests; then `on_answer` is not called.
        """
        self._check_open()
        limits = self._limits
        if len(self._calls) >= limits.calls or self._unsent_size > limits.unsent_high:
            raise TooManyRequests(
                f"{len(self._calls)} calls to {self.peer} wait for answers and {self._unsent_size} bytes to be written,"
                f" {limits.calls_setting} allows no more"
            )
        alone = not self._calls
        self._calls[opaque] = on_answer
        self.out.append(frame)
        if not self._in_turn:
            if alone:
                self._flush()  # as in call_frame
            else:
                self._wake_writer()

    def forget(self, opaque: int) -> None:
        """Stop waiting for this answer; drop it if it arrives."""
        self._calls.pop(opaque, None)

    @property
    def has_hooks(self) -> bool:
        """Whether frames must be encoded from `sign`ed commands."""
        return bool(self._hooks)

    def sign(self, command: Command) -> None:
        """Pass a request that is sent as a frame to the hooks."""
        for hook in self._hooks:
            hook.before(self.peer, command)

    async def _answer_to(self, opaque: int) -> Command:
        self._calls[opaque] = trio.lowlevel.current_task()

        def abort(_: Any) -> Abort:
            del self._calls[opaque]
            return Abort.SUCCEEDED

        return cast(Command, await trio.lowlevel.wait_task_rescheduled(abort))

    def answered(self, answer: Command) -> None:
        """An answer has arrived."""
        waiting = self._calls.pop(answer.opaque, None)
        if waiting is None:
            log.debug("%s answered a call that is no longer waited for (opaque %d)", self.peer, answer.opaque)
        elif isinstance(waiting, trio.lowlevel.Task):
            trio.lowlevel.reschedule(waiting, outcome.Value(answer))
        else:
            waiting(answer)

    def send_oneway(self, command: Command) -> None:
        """Send a one-way request. Raises TooManyRequests, ConnectionLost."""
        self._check_open()
        command.opaque = self.take_opaque()
        command.flag = ONEWAY
        command.header_type = self.header_type
        for hook in self._hooks:
            hook.before(self.peer, command)
        self.send_oneway_frame(encode(command))

    def send_oneway_frame(self, frame: Buffer) -> None:
        """`send_oneway` with a ready-made frame. No hooks run."""
        self._check_open()
        limits = self._limits
        if self._oneway_waiting >= limits.oneway or self._unsent_size > limits.unsent_high:
            raise TooManyRequests(
                f"{self._oneway_waiting} one-way requests and {self._unsent_size} bytes to {self.peer} wait to be"
                f" written, {limits.oneway_setting} allows no more"
            )
        self._oneway_waiting += 1
        self.send((frame,))

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost(f"the connection to {self.peer} is closed")

    # -- answers that handlers do not return

    def answer(self, request: Any, answer: Any) -> None:
        """Answer together with the turn, if the handler returned None because the answer was not known yet."""
        self.send(self._turn.answer(request, answer))

    def answer_deferred(self, request: Any, answer: Any) -> None:
        """Implements `Request.reply`."""
        if not self.closed:
            self.send(self._turn.answer_later(request, answer))
            self._wake_writer()  # wakes a drain, which may have nothing left to wait for

    def answer_together(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """`answer_deferred` for many, written at once instead of in the writer's turn."""
        if self.closed or not answers:
            return
        self.out.extend(self._turn.answer_all_later(answers))
        if not self._in_turn:
            self._flush()
        if self._gathers:
            self._gathers = False
            self._room.unpark_all()
        if self._draining:
            self._wake_writer()


def _reason(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__
