"""How late the event loop is: a task sleeps, and records by how much it overslept.

Everything a broker does waits for this loop, so its delay is in every latency that clients see.

Java: (none; there each thread pool has its own queue, and its waits are in requests 28)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import trio

from rocketlet.metrics.page import Page

PAUSE = 0.25
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, float("inf"))


class LoopDelay:
    """A source of metrics; `run` measures until it is cancelled."""

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS)
        self._total = 0.0

    async def run(self) -> None:
        while True:
            due = trio.current_time() + PAUSE
            await trio.sleep_until(due)
            self.note(trio.current_time() - due)

    def note(self, delay: float) -> None:
        """One measurement, in seconds."""
        delay = max(delay, 0.0)
        self._counts[bisect_left(BOUNDS, delay)] += 1
        self._total += delay

    def fill(self, page: Page) -> Iterator[None]:
        """See Source."""
        family = page.histogram("rocketlet_event_loop_delay_seconds", "How much later than due a task was run.")
        family.add_histogram((), dict(zip(BOUNDS, self._counts, strict=True)), self._total)
        yield

    def not_ready(self) -> Sequence[str]:
        """See Source."""
        return ()
