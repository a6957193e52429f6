"""Who waits until the disk has what was stored: a function each, called when it has, or when it is too late.

No task waits: a task switch costs 10 to 20 µs, and with one send in flight each of them is felt. One task, which runs
while somebody waits, sleeps until the first of them is late; under a steady load it wakes once in `syncFlushTimeout`.

Java: store/CommitLog.java (GroupCommitRequest)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from rocketlet.store.errors import FlushFailed, FlushTimeout
from rocketlet.store.message_store import MessageStore
from rocketlet.store.watermark import Waiter

Then = Callable[[FlushTimeout | FlushFailed | None], None]


@dataclass(slots=True, eq=False)
class _Wait:
    waiter: Waiter
    deadline: float
    timeout_ms: float
    then: Then

    @property
    def is_over(self) -> bool:
        return self.waiter.function is None


class FlushWaits:
    """One object for the whole broker; its nursery is the broker's."""

    def __init__(self, store: MessageStore, nursery: trio.Nursery) -> None:
        self._store = store
        self._nursery = nursery
        self._waits: deque[_Wait] = deque()
        self._is_watched = False

    def call(self, end: int, then: Then) -> None:
        """Call `then` once: with None when the log is on disk up to `end`, else with why it may not be. It must not
        raise, nor write to the store."""
        flushed = self._store.flushed
        if end <= flushed.value or flushed.failure is not None:
            then(self._failure(end))
            return
        timeout = self._store.config.sync_flush_timeout
        waiter = flushed.call_at(end, partial(self._reached, end, then))
        self._waits.append(_Wait(waiter, trio.current_time() + timeout / 1000, timeout, then))
        self._store.want_flush()
        if not self._is_watched:
            self._is_watched = True
            self._nursery.start_soon(self._watch)

    def _reached(self, end: int, then: Then) -> None:
        waits = self._waits
        while waits and waits[0].is_over:
            waits.popleft()
        then(self._failure(end))

    def _failure(self, end: int) -> FlushFailed | None:
        flushed = self._store.flushed
        if end <= flushed.value:
            return None
        assert isinstance(flushed.failure, FlushFailed)
        return flushed.failure

    async def _watch(self) -> None:
        """They come in the order of their deadlines, unless the setting has just been lowered."""
        waits = self._waits
        while waits:
            await trio.sleep_until(waits[0].deadline)
            while waits and (waits[0].is_over or waits[0].deadline <= trio.current_time()):
                wait = waits.popleft()
                if not wait.is_over:
                    wait.waiter.cancel()
                    wait.then(self._store.flush_is_late(wait.timeout_ms))
        self._is_watched = False
