"""Something that one task waits for, with a time limit, and that plain functions announce.

Java: common/CountDownLatch2.java, ServiceThread.java#waitForRunning
"""

from __future__ import annotations

import trio


class Wakeup:
    """Announced before a task waits, it is not lost: the next wait returns at once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Until it is announced or the time is up; whether it was announced."""
        with trio.move_on_after(seconds):
            await self._event.wait()
        announced = self._event.is_set()
        if announced:
            self._event = trio.Event()
        return announced
