"""Timeouts of calls to brokers without their own task: one task handles all of them.

Java: remoting/netty/NettyRemotingAbstract.java (scanResponseTable)
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio

_LOOK_EVERY = 0.25


class Deadlines:
    """Actions to run at a deadline unless cancelled before."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._actions: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, when: float, action: Callable[[], None]) -> int:
        """By trio's clock; at most a quarter of a second late. The returned number cancels it."""
        number = next(self._numbers)
        self._actions[number] = action
        heapq.heappush(self._heap, (when, number))
        return number

    def cross_out(self, number: int) -> None:
        """Cancel the action. Its heap entry goes at its deadline."""
        self._actions.pop(number, None)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await trio.sleep(_LOOK_EVERY)
            now = trio.current_time()
            heap = self._heap
            while heap and (heap[0][0] <= now or heap[0][1] not in self._actions):
                action = self._actions.pop(heapq.heappop(heap)[1], None)
                if action is not None:
                    action()
