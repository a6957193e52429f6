"""Time under the test's control: nothing really sleeps, and wall time follows.

    async def test_expiry(autojump_clock: MockClock, wall_clock: TrioWallClock) -> None:
        broker = Liveness(wall_clock)
        await trio.sleep(121)  # passes at once, for waiting and wall time alike

Both fixtures must be requested: pytest-trio looks for the clock among the test's own arguments.

Under the autojump clock time jumps as soon as every task waits. A worker thread does not count as a running task, so
timeouts would fire while it runs: such tests use disk and network in memory, which need no threads.
"""

from __future__ import annotations

START_MS = 1_700_000_000_000
"""When a test begins, unless it says otherwise: 2023-11-14 22:13:20 UTC."""


class ManualClock:
    """A WallClock for tests without an event loop: stands still until advanced."""

    def __init__(self, now: int = START_MS) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, *, ms: int = 0, seconds: float = 0, hours: float = 0) -> None:
        """May go backwards, like a clock that is set."""
        self.now += ms + round(1000 * (seconds + 3600 * hours))
