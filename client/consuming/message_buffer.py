"""Pulled messages that wait for `poll`: filled on the engine's loop, taken from any thread or task.

A reader that finds it empty leaves a waker and looks once more; the writer calls one waker for each batch. So nothing
is locked, and a message that comes between the two looks is seen by one of them.

Java: client/impl/consumer/DefaultLitePullConsumerImpl.java (consumeRequestCache)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketlet.client.consuming.pulled_queue import Pulled


@dataclass(slots=True, eq=False)
class MessageBuffer:
    """Batches in the order of their arrival."""

    batches: deque[Pulled] = field(default_factory=deque)
    wakers: deque[Callable[[], object]] = field(default_factory=deque)
    closed: bool = False

    def put(self, batch: Pulled) -> None:
        """On the engine's loop."""
        self.batches.append(batch)
        self.wake()

    def put_back(self, batch: Pulled) -> None:
        """From the thread or task that took it: the rest was not handed over after all, and goes back to the front."""
        if batch.handed < len(batch.messages):
            self.batches.appendleft(batch)
            self.wake()

    def wake(self) -> None:
        """Have one waiting reader look again."""
        try:
            waker = self.wakers.popleft()
        except IndexError:
            return
        waker()

    def wake_all(self) -> None:
        """Have all waiting readers look again: it is closed, or one of them has what another waits for."""
        while self.wakers:
            self.wake()

    def take(self) -> Pulled | None:
        """The next batch of a queue that is still ours, if there is one now."""
        while True:
            try:
                batch = self.batches.popleft()
            except IndexError:
                return None
            if not batch.process_queue.dropped:
                return batch

    def stop_waiting(self, waker: Callable[[], object]) -> None:
        """This reader no longer waits; if it was woken already, another one is woken in its place."""
        try:
            self.wakers.remove(waker)
        except ValueError:
            if self.batches:
                self.wake()
