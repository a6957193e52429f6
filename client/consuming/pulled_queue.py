"""The batches pulled from one queue that users have not finished. Pure; owned by the client's engine.

A batch is handed over from the front, to one user or in parts to several, and each finishes the part that he has. So a
queue keeps one number for each batch, where `ProcessQueue` keeps an entry for each message. The offset that may be
committed is the position in the oldest unfinished batch.

Java: client/impl/consumer/ProcessQueue.java
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketlet.client.consuming.process_queue import ProcessQueue, Totals
from rocketlet.client.consuming.received_messages import MessageBatch
from rocketlet.common.message import MessageQueue


@dataclass(slots=True, eq=False)
class Pulled:
    """One batch, how many of its messages were handed over, and how many are finished without a gap."""

    process_queue: PulledQueue
    messages: MessageBatch
    handed: int = 0
    finished: int = 0
    apart: dict[int, int] = field(default_factory=dict)
    """Parts that are finished after a gap: where they begin and end."""


class PulledQueue(ProcessQueue):
    """One queue's open batches."""

    __slots__ = ("_count_open", "_pulled")

    def __init__(self, queue: MessageQueue, start: int, now: float, totals: Sequence[Totals] = ()) -> None:
        super().__init__(queue, start, now, totals)
        self._pulled: deque[Pulled] = deque()
        self._count_open = 0

    def put_batch(self, messages: MessageBatch, next_offset: int) -> Pulled:
        """What a pull found, if it found something; `next_offset` is where the next pull begins."""
        pulled = Pulled(self, messages)
        if messages:
            self._pulled.append(pulled)
        self.pulled_to = next_offset
        self._count_batch(len(messages), sum(map(len, messages.bodies)))
        return pulled

    def finish_part(self, pulled: Pulled, begin: int, end: int) -> None:
        """These of its messages are consumed."""
        pulled.apart[begin] = end
        while pulled.finished in pulled.apart:
            pulled.finished = pulled.apart.pop(pulled.finished)
        self._count_batch(begin - end, -sum(map(len, pulled.messages.bodies[begin:end])))
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
        return oldest.messages.offsets[oldest.finished]

    def _last(self) -> int:
        return self._pulled[-1].messages.offsets[-1]
