"""Pulls that found nothing wait for a message: parked at the end of their queue, woken in the turn that moves it.

A parked pull costs no task. Its queue's watermark marks it for another attempt; `drain`, called once per turn after the
store's dispatch, makes the attempt, so a message reaches the waiting pulls in the turn in which it was sent. An attempt
whose filter matches nothing parks again, further on, instead of sending the client round in circles. A pull still
parked at its timeout is tried once more and answered whatever it finds.

How many may wait at once is the limit of the family `pull` (`pullThreadPoolQueueCapacity`).

Invariants: each parked pull is answered once, or dropped with its connection; none is parked beyond its queue's end.

Java: broker/longpolling/PullRequestHoldService.java, NotifyMessageArrivingListener.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

import trio

from rocketlet.broker.config import Settings
from rocketlet.common.clock import stopwatch
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.handler import Answer, Deferred, Refused, Reply, Request
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.watermark import Watermark

log = logging.getLogger("rocketlet.broker.long_poll")

# For progress outside a turn, which `drain` does not see; RocketMQ checks every 5 s.
SWEEP_SECONDS = 1.0
# Seconds of attempts before other tasks run: one send may wake 50,000 pulls, at 30 µs each.
AT_ONCE = 0.010
# Clients give up at 30 s, and a connection without traffic is closed at 120 s.
LONGEST_HOLD_MS = 120_000

# Tries a parked pull again. True: it must be answered now. Returns an answer, DEFERRED if other code will answer, or
# the offset to wait for next.
Attempt = Callable[[bool], Answer | Deferred | int]


class Parked:
    """One parked pull."""

    __slots__ = ("attempt", "connection", "deadline", "group", "order", "request", "watermark")

    def __init__(self, request: Request, watermark: Watermark, deadline: float, order: int, attempt: Attempt) -> None:
        self.request = request
        self.connection = request.connection
        self.watermark = watermark
        self.deadline = deadline
        self.order = order
        self.attempt: Attempt | None = attempt  # None: answered or dropped
        self.group: PullGroup | None = None

    def __lt__(self, other: Parked) -> bool:
        return (self.deadline, self.order) < (other.deadline, other.order)


class PullGroup:
    """The pulls that wait for one offset of one queue: a send that wakes 50,000 of them marks them as one."""

    __slots__ = ("key", "pulls", "waiter")

    def __init__(self, watermark: Watermark, offset: int, reached: Callable[[PullGroup], None]) -> None:
        self.key = watermark, offset
        self.pulls: dict[Parked, None] = {}
        self.waiter = watermark.call_at(offset, lambda: reached(self))


@dataclass(frozen=True, slots=True)
class LongPollStatistics:
    parked: int


class LongPoll:
    """All parked pulls of one broker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._of_connection: dict[Hashable, set[Parked]] = {}
        self._parked = 0
        self._groups: dict[tuple[Watermark, int], PullGroup] = {}
        self._ready: list[Parked] = []
        self._reached: list[PullGroup] = []
        self._deadlines: list[Parked] = []  # a heap; those answered meanwhile stay until they surface
        self._orders = count()
        self._answers: dict[Connection, list[tuple[Request, Answer]]] = {}  # of this turn, not sent yet
        self._deadline_moved = trio.Event()

    def park(self, request: Request, watermark: Watermark, offset: int, hold_ms: int, attempt: Attempt) -> None:
        """Park a pull until its queue's end reaches `offset`, for as long as its client and the settings allow.

        Requires: its handler returns DEFERRED. Raises Refused if as many are parked as pullThreadPoolQueueCapacity
        allows.
        """
        config = self._settings.now
        if self._parked >= config.pull_thread_pool_queue_capacity:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {self._parked} pulls are held,"
                f" pullThreadPoolQueueCapacity={config.pull_thread_pool_queue_capacity} allows no more",
            )
        hold = hold_ms if config.long_polling_enable else config.short_polling_time_mills
        deadline = request.received_at + min(max(hold, 0), LONGEST_HOLD_MS) / 1000
        parked = Parked(request, watermark, deadline, next(self._orders), attempt)
        self._parked += 1
        self._of_connection.setdefault(parked.connection, set()).add(parked)
        if not self._deadlines or deadline < self._deadlines[0].deadline:
            self._deadline_moved.set()
        heappush(self._deadlines, parked)
        self._wait(parked, offset)

    def drain(self) -> None:
        """Retry those whose queue has moved. Called after every dispatch; costs nothing while no pull waits.

        For at most AT_ONCE seconds: the others are tried by `run`, after other tasks have run.
        """
        if self._reached:
            reached, self._reached = self._reached, []
            for group in reached:
                self._ready.extend(group.pulls)
        ready, self._ready = self._ready, []
        if not ready:
            return
        end = stopwatch() + AT_ONCE
        for number, parked in enumerate(ready, 1):
            self._try(parked, last=False)
            if stopwatch() > end:
                self._ready = ready[number:] + self._ready
                break
        self._send_answers()
        if self._ready:
            self._deadline_moved.set()

    def dropped(self, connection: Hashable) -> None:
        """Forget the pulls of a closed connection."""
        for parked in self._of_connection.pop(connection, ()):
            self._forget(parked)

    async def run(self) -> None:
        """Answer at timeouts, until cancelled."""
        try:
            await self._answer_at_timeouts()
        finally:
            self._deadlines.clear()  # a request is in no cycle that the collector sees, and would keep the whole broker

    async def _answer_at_timeouts(self) -> None:
        while True:
            self._deadline_moved = trio.Event()
            now = trio.current_time()
            self.drain()
            end = stopwatch() + AT_ONCE
            while self._deadlines and self._deadlines[0].deadline <= now and stopwatch() <= end:
                self._try(heappop(self._deadlines), last=True)
            self._send_answers()
            if len(self._deadlines) > 2 * self._parked + 64:
                self._deadlines = [parked for parked in self._deadlines if parked.attempt is not None]
                heapify(self._deadlines)
            wake_at = min(now + SWEEP_SECONDS, self._deadlines[0].deadline) if self._deadlines else float("inf")
            with trio.move_on_at(wake_at):
                await self._deadline_moved.wait()

    def answer_all(self) -> None:
        """Answer all parked pulls as they are: the broker stops."""
        for parked in [parked for parked_set in self._of_connection.values() for parked in parked_set]:
            self._try(parked, last=True)
        self._send_answers()

    def statistics(self) -> LongPollStatistics:
        return LongPollStatistics(self._parked)

    def __repr__(self) -> str:
        return f"<LongPoll: {self._parked} pulls wait>"

    def _wait(self, parked: Parked, offset: int) -> None:
        if offset <= parked.watermark.value:
            self._ready.append(parked)
            return
        key = parked.watermark, offset
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PullGroup(parked.watermark, offset, self._wake)
        group.pulls[parked] = None
        parked.group = group

    def _wake(self, group: PullGroup) -> None:
        """Called inside `advance`, so it only records the wakeup."""
        del self._groups[group.key]
        self._reached.append(group)

    def _try(self, parked: Parked, last: bool) -> None:
        attempt = parked.attempt
        if attempt is None:
            return
        try:
            answer = attempt(last)
        except Refused as refused:
            answer = Reply(refused.code, remark=refused.remark)
        except Exception:
            # Like a failing handler: one request fails, and the error is logged.
            log.exception("a held pull failed: %r", parked.request)
            answer = Reply(ResponseCode.SYSTEM_ERROR, remark="the pull failed; the broker's log has the reason")
        if isinstance(answer, int):
            assert not last, "the last try has to answer"
            self._wait(parked, answer)
            return
        waiting = self._of_connection.get(parked.connection)
        if waiting is not None:
            waiting.discard(parked)
            if not waiting:
                del self._of_connection[parked.connection]
        self._forget(parked)
        if not isinstance(answer, Deferred):
            self._answers.setdefault(parked.connection, []).append((parked.request, answer))

    def _send_answers(self) -> None:
        """Write a connection's answers together and now: its writer would run a round of the loop later."""
        while self._answers:
            connection, answers = self._answers.popitem()
            connection.answer_together(answers)

    def _forget(self, parked: Parked) -> None:
        if parked.attempt is not None:
            parked.attempt = None
            self._parked -= 1
            group, parked.group = parked.group, None
            if group is not None:
                group.pulls.pop(parked, None)
                if not group.pulls and self._groups.get(group.key) is group:
                    del self._groups[group.key]
                    group.waiter.cancel()
