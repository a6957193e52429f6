"""A send in flight, the request that carries it, and the lane of its queue, where it may wait for others.

A thread may ask for the end of a send while the engine tells it. Neither takes a lock: whoever waits first adds a waker
and then looks at `done` again; the engine first sets `done` and then takes the wakers out, one by one. So each waker is
called by the engine or taken back by the waiter.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rocketlet.client.errors import ClientError, TimedOut
from rocketlet.client.sending.send_frames import Parts, SendTemplate
from rocketlet.client.sending.send_result import SendResult
from rocketlet.client.wake_queue import WakeQueue
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.command import Command
from rocketlet.remoting.connection import Connection

Select: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
Answer: TypeAlias = Command | Exception
"""What a request came to: an error of its connection, or one that kept its frame from being made, in place of one."""


@dataclass(slots=True, eq=False)
class Send:
    """One send. `prepare` fills in what is sent; the pipeline (or the direct line) keeps its tries here."""

    # What is sent.
    message_id: str = field(init=False)
    topic: str = field(init=False)
    template: SendTemplate = field(init=False)
    text: str = field(init=False)
    """Its properties."""
    body: bytes = field(init=False)
    sys_flag: int = field(init=False)
    flag: int = field(init=False)
    born: int = field(init=False)
    oneway: bool = field(init=False)
    alone: bool = field(init=False)
    """Whether it must not leave in a batch with others."""
    timeout: float = field(init=False)
    fixed: MessageQueue | None = None
    select: Select | None = None

    # Its tries; times are seconds of the engine's clock.
    queue: MessageQueue = field(init=False)
    began: float = field(init=False)
    tried_at: float = field(init=False)
    deadline: float = field(init=False)
    tries: int = 0
    unsent: int = 0
    """Those of the tries that never left: there was no address, or no connection could be made."""
    rests: int = 0
    failed_at: set[str] | None = None
    """Brokers at which it failed since its last rest."""
    causes: list[ClientError] | None = None
    call: Call | None = None
    """The request that it is in flight with."""
    waits_in: Lane | None = None
    counted: bool = False
    """Whether the body counts among the bytes in flight."""
    done: bool = False
    result: SendResult | None = None
    error: ClientError | None = None
    _wakers: list[Callable[[], object]] = field(default_factory=list)

    def parts(self, text: str, body: bytes) -> Parts:
        """What templates make frames of. `text` and `body` are those of a batch where it leaves with others."""
        return self.queue.queue_id, self.sys_flag, self.born, self.flag, text, body, self.oneway

    def ends_with(self, call: Call | None) -> bool:
        """Whether it is in flight with this request, or with none; from now on it is not."""
        if self.call is not call:
            return False
        self.call = None
        return True

    def settle(self, result: SendResult | None, error: ClientError | None) -> None:
        """The send is over. Wakes whoever waits."""
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
        """Have this called, by the engine, when the send is over. False: it is over already, and it is not called."""
        self._wakers.append(wake)
        return not (self.done and self.take_back(wake))

    def take_back(self, wake: Callable[[], object]) -> bool:
        """Do not call this any more; False: the engine has done so, or is about to."""
        try:
            self._wakers.remove(wake)
        except ValueError:
            return False
        return True

    def wait(self, wakes: WakeQueue, timeout: float | None = None) -> SendResult:
        """Wait in this thread for the result. Raises the send's error, or TimedOut."""
        if not self.done and not wakes.sleep(self.when_done, self.take_back, timeout):
            raise TimedOut("the send is still in flight", topic=self.topic, elapsed_ms=1000 * (timeout or 0))
        return self.outcome()

    def outcome(self) -> SendResult:
        """The result, or the error raised. Requires: done."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class Call:
    """One request in flight: a send by itself, or several as a batch, in its order."""

    __slots__ = ("lane", "line", "opaque", "sends", "waited_for")

    def __init__(self, lane: Lane, line: Connection, sends: list[Send]) -> None:
        self.lane = lane
        self.line = line
        self.sends = sends
        self.waited_for = len(sends)
        """Those of them that were not given up."""
        self.opaque = line.take_opaque()


@dataclass(slots=True, eq=False)
class Lane:
    """What waits for one queue, and how many requests to it are in flight."""

    address: str = ""
    calls: int = 0
    due: float = 0.0
    """Until then the sends wait on purpose."""
    waiting: list[Send] = field(default_factory=list)
    size: int = 0

    def take(self) -> list[Send]:
        """Those that wait, and still want to be sent."""
        sends = [send for send in self.waiting if send.waits_in is self]
        for send in sends:
            send.waits_in = None
        self.waiting.clear()
        self.size = 0
        return sends
