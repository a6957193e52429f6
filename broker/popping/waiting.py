"""Pops that found nothing wait here: woken in the turn that brings a message, and when one is due again.

Those for the same group, topic, queues and filter wait in one line, first come, first served. Events for a group and
topic ring its *bell*: a message in one of the topic's queues, an ack that frees a message group, a changed invisible
time, a message becoming due again. `drain`, once per turn, tries the first of each line, then the next, until one finds
nothing; so a message costs one attempt, however many wait.

Invariants: each request is answered once, or dropped with its connection; a bell without waiting pops holds nothing;
all bells together watch at most MAX_WATCHED queues.

Java: broker/longpolling/PopLongPollingService.java
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

import trio

from rocketlet.common.clock import WallClock, stopwatch
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.handler import Answer, Deferred, Refused, Reply, Request
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.watermark import Waiter, Watermark

log = logging.getLogger("rocketlet.broker.popping.waiting")

MAX_WAITING: Final = 1024  # for one group and topic
MAX_WATCHED: Final = 400_000  # 300 bytes each; a queue counts once for each group that waits for it
LONGEST_HOLD_MS: Final = 120_000
AT_ONCE: Final = 0.010  # seconds of attempts before other tasks run
LONGEST_SLEEP: Final = 1.0
CLOCK_STEP_MS: Final = 100  # by which the wall clock may drift against trio's before all are tried


class Outcome(Enum):
    """The result of an attempt without an answer."""

    NOTHING = "wait on"
    MORE = "try again soon: there is more to look through"


Attempt = Callable[[bool], Answer | Deferred | Outcome]
"""Tries again; True: it is the last time, and must be answered."""


class Parked:
    """One waiting request."""

    __slots__ = ("attempt", "bell", "deadline", "order", "request")

    def __init__(self, request: Request, bell: Bell, deadline: float, order: int, attempt: Attempt) -> None:
        self.request = request
        self.bell = bell
        self.deadline = deadline
        self.order = order
        self.attempt: Attempt | None = attempt  # None: answered or dropped

    def __lt__(self, other: Parked) -> bool:
        return (self.deadline, self.order) < (other.deadline, other.order)


class Bell:
    """The bell of one group and topic."""

    __slots__ = ("armed", "group", "lines", "rings_at", "topic", "waiting")

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.lines: dict[Hashable, deque[Parked]] = {}
        self.armed: dict[int, Waiter] = {}  # by queue
        self.waiting = 0
        self.rings_at = float("inf")

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.topic


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    parked: int


class Waiting(ConnectionEvents):
    """All waiting pops of one broker. `next_due` returns when a message of a group and topic is due again."""

    def __init__(
        self,
        clock: WallClock,
        queues_of: Callable[[str], int],
        watch: Callable[[str, int], Watermark],
        next_due: Callable[[str, str], int],
    ) -> None:
        self._clock = clock
        self._queues_of = queues_of
        self._watch = watch
        self._next_due = next_due
        self.tried: Callable[[], None] = lambda: None
        """Called after some have tried: they may have DEFERRED their answers to it."""
        self._bells: dict[tuple[str, str], Bell] = {}
        self._ready: dict[tuple[str, str], None] = {}
        self._of_connection: dict[Hashable, set[Parked]] = {}
        self._deadlines: list[Parked] = []
        self._rings: list[tuple[float, int, Bell]] = []
        self._orders = count()
        self._watched = 0
        self._deadline_moved = trio.Event()

    def is_full(self, group: str, topic: str) -> bool:
        """Whether no other pop can wait for them."""
        bell = self._bells.get((group, topic))
        if bell is None:
            return self._watched + self._queues_of(topic) > MAX_WATCHED
        return bell.waiting >= MAX_WAITING

    def waiting(self, group: str, topic: str) -> int:
        """How many wait for a group and topic."""
        bell = self._bells.get((group, topic))
        return bell.waiting if bell is not None else 0

    def park(self, request: Request, group: str, topic: str, kind: Hashable, hold_ms: int, attempt: Attempt) -> None:
        """Park a request until it finds something; those of one `kind` form a line. REQUIRES that its handler returns
        DEFERRED, and that not `is_full`."""
        bell = self._bells.get((group, topic))
        if bell is None:
            bell = self._bells[group, topic] = Bell(group, topic)
        deadline = request.received_at + min(max(hold_ms, 0), LONGEST_HOLD_MS) / 1000
        parked = Parked(request, bell, deadline, next(self._orders), attempt)
        bell.lines.setdefault(kind, deque()).append(parked)
        bell.waiting += 1
        self._of_connection.setdefault(request.connection, set()).add(parked)
        if not self._deadlines or deadline < self._deadlines[0].deadline:
            self._deadline_moved.set()
        heappush(self._deadlines, parked)
        self._arm(bell)

    def ring(self, group: str, topic: str) -> None:
        """There may be something for a group and topic. Only recorded here; `drain` makes the attempts."""
        if (group, topic) in self._bells:
            self._ready[group, topic] = None

    def drain(self) -> None:
        """Try the requests whose bell rang. Called once per turn; costs nothing if none did."""
        if not self._ready:
            return
        end = stopwatch() + AT_ONCE
        ready, self._ready = self._ready, {}
        for number, key in enumerate(ready):
            if stopwatch() > end:
                self._ready = dict.fromkeys(list(ready)[number:]) | self._ready
                break
            bell = self._bells.get(key)
            if bell is not None:
                self._try_parked(bell, end)
        self.tried()
        if self._ready:
            self._deadline_moved.set()

    def closed(self, connection: Connection) -> None:
        """Forget the requests of a closed connection."""
        for parked in self._of_connection.pop(connection, ()):
            self._forget(parked)

    def answer_all(self) -> None:
        """Answer all waiting requests as they are: the broker stops, or is no longer master."""
        for parked in [parked for parked_set in list(self._of_connection.values()) for parked in parked_set]:
            self._try(parked, last=True)
        self.tried()

    async def run(self) -> None:
        """Answer at timeouts and ring for due messages, until cancelled."""
        offset = self._clock() - trio.current_time() * 1000
        while True:
            self._deadline_moved = trio.Event()
            now = trio.current_time()
            step = self._clock() - now * 1000 - offset
            if abs(step) > CLOCK_STEP_MS:
                offset += step
                self._ready.update(dict.fromkeys(self._bells))
            while self._rings and self._rings[0][0] <= now:
                at, _, bell = heappop(self._rings)
                if bell.rings_at == at:
                    bell.rings_at = float("inf")
                    self.ring(*bell.key)
            self.drain()
            end = stopwatch() + AT_ONCE
            while self._deadlines and self._deadlines[0].deadline <= now and stopwatch() <= end:
                self._try(heappop(self._deadlines), last=True)
            self.tried()
            self._drop_done()
            wake_at = min(
                now + LONGEST_SLEEP if self._bells else float("inf"),
                self._deadlines[0].deadline if self._deadlines else float("inf"),
                self._rings[0][0] if self._rings else float("inf"),
            )
            with trio.move_on_at(wake_at):
                await self._deadline_moved.wait()
            await trio.lowlevel.checkpoint()

    def statistics(self) -> WaitingStatistics:
        return WaitingStatistics(sum(bell.waiting for bell in self._bells.values()))

    def __repr__(self) -> str:
        return f"<Waiting: {self.statistics().parked} pops>"

    # ---- one bell

    def _try_parked(self, bell: Bell, end: float) -> None:
        for kind, line in list(bell.lines.items()):
            while line:
                parked = line[0]
                outcome = self._try(parked, last=False) if parked.attempt is not None else None
                if outcome is Outcome.NOTHING:
                    break
                if outcome is Outcome.MORE or stopwatch() > end:
                    self._ready[bell.key] = None
                    break
                line.popleft()
            if not line:
                del bell.lines[kind]
        if bell.waiting:
            self._arm(bell)
        else:
            self._close(bell)

    def _arm(self, bell: Bell) -> None:
        """Make it ring for the next message of each queue, and when the next one is due again."""
        ring, count = partial(self.ring, *bell.key), len(bell.armed)
        for queue_id in range(self._queues_of(bell.topic)):
            waiter = bell.armed.get(queue_id)
            if waiter is None or waiter.function is None:
                watermark = self._watch(bell.topic, queue_id)
                bell.armed[queue_id] = watermark.call_at(watermark.value + 1, ring)
        self._watched += len(bell.armed) - count
        due = self._next_due(bell.group, bell.topic)
        at = trio.current_time() + max(due - self._clock(), 0) / 1000
        if at < bell.rings_at and at < trio.current_time() + LONGEST_HOLD_MS / 1000:
            bell.rings_at = at
            if not self._rings or at < self._rings[0][0]:
                self._deadline_moved.set()
            heappush(self._rings, (at, next(self._orders), bell))

    def _close(self, bell: Bell) -> None:
        for waiter in bell.armed.values():
            waiter.cancel()
        self._watched -= len(bell.armed)
        bell.armed = {}
        bell.rings_at = float("inf")
        if self._bells.get(bell.key) is bell:
            del self._bells[bell.key]

    def _try(self, parked: Parked, last: bool) -> Outcome | None:
        """None: it has been answered."""
        attempt = parked.attempt
        if attempt is None:
            return None
        try:
            answer = attempt(last)
        except Refused as refused:
            answer = Reply(refused.code, header=refused.header, remark=refused.remark)
        except Exception:
            # Like a failing handler: one request fails, and the error is logged.
            log.exception("a held pop failed: %r", parked.request)
            answer = Reply(ResponseCode.SYSTEM_ERROR, remark="the pop failed; the broker's log has the reason")
        if isinstance(answer, Outcome):
            assert not last, "the last try has to answer"
            return answer
        waiting = self._of_connection.get(parked.request.connection)
        if waiting is not None:
            waiting.discard(parked)
            if not waiting:
                del self._of_connection[parked.request.connection]
        self._forget(parked)
        if not isinstance(answer, Deferred):
            parked.request.reply(answer)
        return None

    def _forget(self, parked: Parked) -> None:
        if parked.attempt is not None:
            parked.attempt = None
            parked.bell.waiting -= 1
            if not parked.bell.waiting:
                self._close(parked.bell)

    def _drop_done(self) -> None:
        """Remove entries of answered or dropped pops from heaps and lines."""
        parked = sum(bell.waiting for bell in self._bells.values()) if len(self._deadlines) > 64 else 0
        if len(self._deadlines) > 2 * parked + 64:
            self._deadlines = sorted(request for request in self._deadlines if request.attempt is not None)
            for bell in self._bells.values():
                for kind, line in list(bell.lines.items()):
                    bell.lines[kind] = deque(request for request in line if request.attempt is not None)
        if len(self._rings) > 2 * len(self._bells) + 64:
            self._rings = sorted(ring for ring in self._rings if ring[2].rings_at == ring[0])
