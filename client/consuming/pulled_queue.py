"""The batches that a lite pull consumer has pulled: those that wait for `poll`, and what is unfinished of each queue.

A batch is handed over from the front, to one user or in parts to several, and each finishes the part that he has. So a
queue keeps one number for each batch, where `ProcessQueue` keeps an entry for each message. The offset that may be
committed is the position in the oldest unfinished batch.

The buffer is filled on the engine's loop and read by any thread or task. A reader that finds it empty leaves a waker
and looks once more; the writer calls one waker for each batch. So nothing is locked, and a message that comes between
the two looks is seen by one of them.

Java: client/impl/consumer/ProcessQueue.java, DefaultLitePullConsumerImpl.java (consumeRequestCache)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.received_messages import MessageBatch


@dataclass(slots=True, eq=False)
class Pulled:
    """One batch, how many of its messages were handed over, and how many are finished without a gap."""

    process_queue: PulledQueue
    messages: MessageBatch
    sizes: list[int]
    """Of the bodies: the batch is its user's, who may change them."""
    handed: int = 0
    finished: int = 0
    apart: dict[int, int] = field(default_factory=dict)
    """Parts that are finished after a gap: where they begin and end."""


@dataclass(slots=True, eq=False, repr=False)
class PulledQueue(ProcessQueue):
    """One queue's open batches."""

    _pulled: deque[Pulled] = field(default_factory=deque)
    _count_open: int = 0

    def put_batch(self, messages: MessageBatch, next_offset: int) -> Pulled:
        """What a pull found, if it found something; `next_offset` is where the next pull begins."""
        pulled = Pulled(self, messages, [len(body) for body in messages.bodies])
        if messages:
            self._pulled.append(pulled)
        self.pulled_to = next_offset
        self._count_batch(len(messages), sum(pulled.sizes))
        return pulled

    def finish_part(self, pulled: Pulled, begin: int, end: int) -> None:
        """These of its messages are consumed."""
        pulled.apart[begin] = end
        while pulled.finished in pulled.apart:
            pulled.finished = pulled.apart.pop(pulled.finished)
        self._count_batch(begin - end, -sum(pulled.sizes[begin:end]))
        while self._pulled and self._pulled[0].finished == len(self._pulled[0].messages):
            self._pulled.popleft()

    def _count_batch(self, count: int, size: int) -> None:
        self._count_open += count
        self._count(count, size)

    @property
    def count(self) -> int:
        return self._count_open

    def _first(self) -> int:
        oldest = self._pulled[0]
        return oldest.messages.offset_at(oldest.finished)

    def _last(self) -> int:
        return self._pulled[-1].messages.offset_at(-1)


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
