"""Wall time: the only module that reads it.

Two clocks run in a process. *Waiting* is trio's clock, which a test replaces by `MockClock`. *Wall time* is what goes
into records, file names and expiry tables: milliseconds since 1970 as a plain int, handed in as a `WallClock`, a
callable of no arguments. Whatever decides by time is given a WallClock or, in the pure modules, the time itself.

Invariant: under `TrioWallClock` both clocks are one, so that sixteen retries over five hours pass in milliseconds and
time stamps always agree with time-outs.

Java: common/UtilAll.java, store/SystemClock.java
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import trio

WallClock: TypeAlias = Callable[[], int]
"""Milliseconds since 1970-01-01 UTC."""


def system_clock() -> int:
    """The machine's own time. It may jump, even backwards, when the clock is set."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds of trio's clock, which cannot be set: for ages, leases and time-outs. Requires: inside a trio
    run."""
    import trio

    return round(trio.current_time() * 1000)


def stopwatch() -> float:
    """Seconds of real time, even under a test's clock: for measuring how long work took."""
    return time.perf_counter()


class TrioWallClock:
    """A WallClock that moves exactly as a trio clock does: the current run's unless another is given.

    May be called from worker threads and outside the run, since it keeps the clock itself and does not ask the run.
    """

    def __init__(self, start_ms: int, clock: trio.abc.Clock | None = None) -> None:
        if clock is None:
            import trio

            clock = trio.lowlevel.current_clock()
        self._clock = clock
        self._start_ms = start_ms
        self._origin = clock.current_time()

    def __call__(self) -> int:
        # Rounded to the nearest, not cut: trio counts in float seconds, and 0.3 s is 299.99… ms.
        return self._start_ms + round((self._clock.current_time() - self._origin) * 1000)

    def __repr__(self) -> str:
        return f"<TrioWallClock at {self()} ms, {self() - self._start_ms} ms after its start>"
