"""A send on its way, and the result that comes of it.

Whoever sends gets one of these at once. A plain thread asks for `result()`, which waits; a task awaits it, under trio
or asyncio; `add_done_callback` is for both. It is also the engine's own record of the send, for a second object a
message would cost as much as the send's header does.

A thread may ask while the engine answers. Neither takes a lock: whoever waits first puts its waker into `_wakers` and
then looks at `done` again; the engine first sets `done` and then takes the wakers out, one by one. So a waker is called
by one of the two or not needed.

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
    from rocketlet.remoting.command import Command
    from rocketlet.remoting.connection import Connection
    from rocketlet.remoting.errors import RemotingError

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]


class Sender(Protocol):
    """Whose send it is, and in which world its waiters live: threads, trio or asyncio."""

    def answered(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        """A try has come to an end."""

    def callback(self, function: Callable[[PendingSend], object], pending: PendingSend) -> Callable[[], object]:
        """What to call, on the engine's loop, so that the user's function runs where it may."""

    def wait_for(self, pending: PendingSend) -> Awaitable[None]:
        """Wait in a task until it is done."""


class PendingSend:
    """One send. Only what has no underscore is for users."""

    __slots__ = (
        "_began",
        "_body",
        "_born",
        "_causes",
        "_connection",
        "_deadline",
        "_engine",
        "_error",
        "_fixed",
        "_flag",
        "_inside",
        "_oneway",
        "_opaque",
        "_properties",
        "_queue",
        "_result",
        "_select",
        "_sys_flag",
        "_template",
        "_timeout",
        "_topic",
        "_tried_at",
        "_tries",
        "_wakers",
        "done",
        "message_id",
    )

    def __init__(self) -> None:
        self.done = False
        """Whether there is a result or an error."""
        self.message_id = ""
        """The unique id of the message; it is the same in all tries."""
        self._result: SendResult | None = None
        self._error: ClientError | None = None
        self._wakers: list[Callable[[], object]] = []

    # ---- for users

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait in this thread, and return the result or raise the error.

            pending = producer.send_soon(Message("T", b"hi"))
            print(pending.result().queue_offset)

        Not for the thread of an event loop: there, await it.
        """
        if not self.done:
            lock = allocate_lock()
            lock.acquire()
            self._wakers.append(lock.release)
            if not self.done and not lock.acquire(timeout=-1 if timeout is None else timeout):
                raise TimedOut("the send is still on its way", topic=self._topic, elapsed_ms=1000 * (timeout or 0))
        return self._outcome()

    def exception(self) -> ClientError | None:
        """The error of a send that has failed. Requires: done."""
        return self._error

    def add_done_callback(self, callback: Callable[[PendingSend], object]) -> None:
        """Call this with the send once it is done; in the engine's callback thread, or under trio in its loop.

        producer.send_soon(message).add_done_callback(lambda sent: print(sent.exception() or sent.result()))
        """
        call = self._engine.callback(callback, self)
        self._wakers.append(call)
        if self.done:
            try:
                self._wakers.remove(call)
            except ValueError:
                return  # the engine has taken it, and calls it
            call()

    def __await__(self) -> Generator[Any, Any, SendResult]:
        if not self.done:
            yield from self._engine.wait_for(self).__await__()
        return self._outcome()

    def __repr__(self) -> str:
        state = "on its way" if not self.done else f"failed: {self._error}" if self._error else "sent"
        return f"<PendingSend {self.message_id} to {self._topic}: {state}>"

    def _outcome(self) -> SendResult:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    # ---- for the engine

    _topic: str
    _template: SendTemplate
    _body: bytes
    _properties: bytes
    _sys_flag: int
    _flag: int
    _born: int
    _oneway: bool
    _inside: bool
    _fixed: MessageQueue | None
    _select: Select | None
    _queue: MessageQueue
    _began: float
    _tried_at: float
    _deadline: float
    _timeout: float
    _tries: int
    _causes: list[ClientError] | None
    _connection: Connection | None
    _opaque: int
    _engine: Sender

    def _answered(self, answer: Command | RemotingError) -> None:
        self._engine.answered(self, answer)

    def _settle(self, result: SendResult | None, error: ClientError | None) -> None:
        self._result = result
        self._error = error
        self.done = True
        wakers = self._wakers
        while wakers:
            try:
                wake = wakers.pop()
            except IndexError:
                return  # a thread has just taken its own out
            wake()
