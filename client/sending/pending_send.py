"""A send in flight: `Send`, the engine's record of it, and `PendingSend`, the user's future.

A plain thread asks for `result()`, which waits; a task awaits it, under trio or asyncio; callbacks are for both. A send
that nobody holds while it is in flight, which is every call of `send`, has no `PendingSend`.

A thread may ask while the engine answers. Neither takes a lock: the waiting side first adds a waker and then looks at
`done` again; the engine first sets `done` and then takes the wakers out, one by one. So each waker is called by the
engine or taken back by the waiter.

Java: client/producer/SendCallback.java
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rocketlet.client.errors import ClientError, TimedOut
from rocketlet.client.sending.send_result import SendResult
from rocketlet.common.message import MessageQueue

if TYPE_CHECKING:
    from rocketlet.client.sending.send_frames import SendTemplate
    from rocketlet.remoting.command import Command, HeaderType
    from rocketlet.remoting.connection import Connection
    from rocketlet.remoting.errors import RemotingError

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]


class Tries(Protocol):
    """What tries a send."""

    def answered(self, send: Send, answer: Command | RemotingError) -> None:
        """A try has ended."""


class Send:
    """One send. `prepare` fills in what is sent; the pipeline (or the direct line) keeps its tries here."""

    __slots__ = (
        "_wakers",
        "began",
        "body",
        "born",
        "causes",
        "connection",
        "counted",
        "deadline",
        "done",
        "error",
        "failed_at",
        "fixed",
        "flag",
        "message_id",
        "oneway",
        "opaque",
        "properties",
        "queue",
        "rests",
        "result",
        "select",
        "sys_flag",
        "template",
        "timeout",
        "topic",
        "tried_at",
        "tried_by",
        "tries",
        "unsent",
    )

    # What is sent.
    tried_by: Tries
    message_id: str
    topic: str
    template: SendTemplate
    properties: bytes
    body: bytes
    sys_flag: int
    flag: int
    born: int
    oneway: bool
    timeout: float
    fixed: MessageQueue | None
    select: Select | None

    # Its tries; times are seconds of the engine's clock.
    queue: MessageQueue
    began: float
    tried_at: float
    deadline: float
    opaque: int

    def __init__(self) -> None:
        self.tries = 0
        self.unsent = 0
        """Tries that were never sent: there was no address, or no connection could be made."""
        self.rests = 0
        self.failed_at: set[str] | None = None
        """Brokers at which it failed since its last rest."""
        self.causes: list[ClientError] | None = None
        self.connection: Connection | None = None
        self.counted = False
        """Whether the body counts among the bytes in flight."""
        self.done = False
        self.result: SendResult | None = None
        self.error: ClientError | None = None
        self._wakers: list[Callable[[], object]] = []

    def frame(self, opaque: int) -> bytes:
        """The frame of a try, with a JSON header."""
        return self.template.frame(
            opaque, self.queue.queue_id, self.sys_flag, self.born, self.flag, self.properties, self.body, self.oneway
        )

    def command(self, header_type: HeaderType) -> Command:
        """The request of a try, for other header types and for hooks."""
        return self.template.command(
            header_type, self.queue.queue_id, self.sys_flag, self.born, self.flag, self.properties, self.body,
            self.oneway,
        )  # fmt: skip

    def answered(self, answer: Command | RemotingError) -> None:
        """A try has ended; called by connections."""
        self.tried_by.answered(self, answer)

    def settle(self, result: SendResult | None, error: ClientError | None) -> None:
        """The send is over. Wakes all that wait for it."""
        self.result = result
        self.error = error
        self.done = True
        wakers = self._wakers
        while wakers:
            try:
                wake = wakers.pop()
            except IndexError:
                return  # a thread has just taken its own back
            wake()

    # ---- waiting

    def when_done(self, wake: Callable[[], object]) -> bool:
        """Have the engine call this when the send is over. False: it is over already, and this is not called."""
        self._wakers.append(wake)
        return not (self.done and self.take_back(wake))

    def take_back(self, wake: Callable[[], object]) -> bool:
        """Withdraw a waker; False: the engine has called it, or is about to."""
        try:
            self._wakers.remove(wake)
        except ValueError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> SendResult:
        """Wait in this thread for the result. Raises the send's error, or TimedOut."""
        if not self.done:
            lock = allocate_lock()
            lock.acquire()
            if self.when_done(lock.release) and not lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                self.take_back(lock.release)
                raise TimedOut("the send is still in flight", topic=self.topic, elapsed_ms=1000 * (timeout or 0))
        return self.outcome()

    def outcome(self) -> SendResult:
        """The result, or the error raised. Requires: done."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class Waiting(Protocol):
    """How users of a client wait: in threads, under trio or under asyncio."""

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        """What to call on the engine's loop so that the user's function runs where user code may run."""

    def wait_for(self, send: Send) -> Awaitable[None]:
        """Wait in a task until it is done."""


class PendingSend:
    """The future of a send that may still be in flight."""

    __slots__ = ("_send", "_waiting")

    def __init__(self, send: Send, waiting: Waiting) -> None:
        self._send = send
        self._waiting = waiting

    @property
    def message_id(self) -> str:
        """The unique id of the message; it is the same in all tries."""
        return self._send.message_id

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._send.done

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait in this thread, and return the result or raise the error.

            pending = producer.send_soon(Message("T", b"hi"))
            print(pending.result().queue_offset)

        Not for the thread of an event loop: there, await it.
        """
        return self._send.wait(timeout)

    def exception(self) -> ClientError | None:
        """The error of a send that has failed. Requires: done."""
        return self._send.error

    def add_done_callback(self, callback: Callable[[PendingSend], object]) -> None:
        """Call this with the send once it is done; in the engine's callback thread, or under trio in its loop.

        producer.send_soon(message).add_done_callback(lambda sent: print(sent.exception() or sent.result()))
        """
        call = self._waiting.callback(lambda: callback(self))
        if not self._send.when_done(call):
            call()

    def __await__(self) -> Generator[Any, Any, SendResult]:
        if not self._send.done:
            yield from self._waiting.wait_for(self._send).__await__()
        return self._send.outcome()

    def __repr__(self) -> str:
        send = self._send
        state = "in flight" if not send.done else f"failed: {send.error}" if send.error else "sent"
        return f"<PendingSend {send.message_id} to {send.topic}: {state}>"
