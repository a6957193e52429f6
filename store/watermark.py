"""An offset that only grows and that others wait for: appended, flushed, dispatched, the end of each queue.

It stands in for Java's group-commit futures, the 1 ms poll of its re-put thread, the pull-hold service and its
listeners. Two ways to wait: `await reach(offset)` for a task, and `call_at(offset, function)` without one (a parked
pull: a task switch costs 10 to 20 µs, a call 0.2). A function is called inside `advance`, so it only takes
note; it must not raise, nor write to the store.

Invariants: a waiter is called once, or cancelled, never both; a cancelled one leaves nothing behind; waiters are called
in the order of their offsets, and for equal offsets in the order of arrival. After `fail` no wait beyond the value
succeeds any more.

Java: store/CommitLog.java (GroupCommitService), broker/longpolling/PullRequestHoldService.java
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count


@dataclass(frozen=True, slots=True)
class WatermarkStatistics:
    value: int
    waiting: int


class Waiter:
    """A waiter. `cancel` may be called at any time, even after the call."""

    __slots__ = ("_watermark", "function", "offset", "order")

    def __init__(self, watermark: Watermark, offset: int, order: int, function: Callable[[], object]) -> None:
        self._watermark = watermark
        self.offset = offset
        self.order = order
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        if self.function is not None:
            self.function = None
            self._watermark._cancelled_one()

    def __lt__(self, other: Waiter) -> bool:
        return (self.offset, self.order) < (other.offset, other.order)


class Watermark:
    """A growing offset and its waiters."""

    __slots__ = ("_dead", "_error", "_heap", "_orders", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._heap: list[Waiter] = []
        self._dead = 0  # cancelled ones still in the heap
        self._orders = count()
        self._error: BaseException | None = None

    def advance(self, offset: int) -> None:
        """Grow to an offset, and call all waiters that it reaches. A smaller one changes nothing."""
        if offset <= self.value:
            return
        self.value = offset
        heap = self._heap
        while heap and heap[0].offset <= offset:
            waiter = heappop(heap)
            function, waiter.function = waiter.function, None
            if function is None:
                self._dead -= 1
            else:
                function()

    def call_at(self, offset: int, function: Callable[[], object]) -> Waiter:
        """Call a function once the offset is reached. REQUIRES that it is not reached yet."""
        assert offset > self.value, "already reached: the function would never be called"
        waiter = Waiter(self, offset, next(self._orders), function)
        heappush(self._heap, waiter)
        return waiter

    async def reach(self, offset: int) -> None:
        """Wait until the value is at least `offset`. Raises the error given to `fail`."""
        import trio

        if offset <= self.value:
            await trio.lowlevel.checkpoint()
            return
        if self._error is not None:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise self._error
        task = trio.lowlevel.current_task()
        waiter = self.call_at(offset, lambda: trio.lowlevel.reschedule(task))

        def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
            waiter.cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self.value < offset:
            assert self._error is not None
            raise self._error

    def fail(self, error: BaseException) -> None:
        """Offsets not reached by now never will be: all waiters are called, and `reach` raises the error."""
        self._error = error
        heap, self._heap, self._dead = sorted(self._heap), [], 0
        for waiter in heap:
            function, waiter.function = waiter.function, None
            if function is not None:
                function()

    @property
    def failure(self) -> BaseException | None:
        return self._error

    def statistics(self) -> WatermarkStatistics:
        return WatermarkStatistics(self.value, len(self._heap) - self._dead)

    def _cancelled_one(self) -> None:
        # Cancelled waiters stay in the heap until they reach its top, or until they are most of it.
        self._dead += 1
        if self._dead * 2 > len(self._heap):
            self._heap = [waiter for waiter in self._heap if waiter.function is not None]
            heapify(self._heap)
            self._dead = 0

    def __repr__(self) -> str:
        statistics = self.statistics()
        return f"<Watermark {statistics.value}, {statistics.waiting} waiting>"
