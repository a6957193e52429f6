"""The messages pulled from one queue and not consumed yet. Pure; owned by the client's engine.

Messages enter in the order of their offsets and leave in any order. What may be committed is the lowest offset that is
still open, or, where nothing is open, the offset up to which the queue has been pulled: so a committed offset is never
ahead of what was consumed, and a crash repeats some messages instead of losing one.

An orderly consumer takes the oldest messages and finishes those that it could consume; the rest are the oldest again,
so nothing overtakes.

Invariant: `count` and `bytes` are those of the open messages; `committable()` never falls while the queue is held.

Java: client/impl/consumer/ProcessQueue.java
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rocketlet.common.message import MessageQueue, ReceivedMessage

LOCK_VALID_MS = 30_000  # a lock not renewed for this long is not trusted; the broker keeps it for 60 s
PULL_STALL_MS = 120_000  # a queue not pulled for this long is released and acquired again


@dataclass(slots=True)
class Totals:
    """Totals of the open messages of several queues, kept up to date."""

    count: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False, repr=False)
class ProcessQueue:
    """One queue's open messages. Times are milliseconds that the caller reads from its clock."""

    queue: MessageQueue
    pulled_to: int
    last_pull: float
    totals: Sequence[Totals] = ()
    bytes: int = 0
    dropped: bool = False
    locked: bool = False
    last_lock: float = 0.0
    last_consume: float = field(init=False)
    # By offset, with the size of its body. Neither is asked of a message again, for its listener may change it.
    _open: dict[int, tuple[ReceivedMessage, int]] = field(default_factory=dict)
    # Offsets in the order of arrival. Those at the head that are no longer open are dropped lazily:
    # next(iter(dict)) would do without it, but walks over every deleted entry, and a thousand messages deep that
    # costs more than all else.
    _order: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.last_consume = self.last_pull

    # ---- filling

    def put(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """What a pull found; `next_offset` is where the next pull begins."""
        count, size = 0, 0
        for message in messages:
            offset = message.queue_offset
            if offset not in self._open:
                body_size = len(message.body)
                self._open[offset] = message, body_size
                self._order.append(offset)
                count += 1
                size += body_size
        self.pulled_to = next_offset
        self._count(count, size)

    def _count(self, count: int, size: int) -> None:
        self.bytes += size
        if not self.dropped:
            for totals in self.totals:
                totals.count += count
                totals.bytes += size

    @property
    def count(self) -> int:
        """Open messages."""
        return len(self._open)

    @property
    def span(self) -> int:
        """Distance from the first open offset to the last: finished ones between them wait for one that is stuck."""
        first, last = self.open_range
        return last - first

    @property
    def open_range(self) -> tuple[int, int]:
        """The first and the last open offset; both 0 where nothing is open."""
        return (self._first(), self._last()) if self.count else (0, 0)

    def _last(self) -> int:
        """Requires: something is open."""
        order, open_messages = self._order, self._open
        while order[-1] not in open_messages:
            order.pop()
        return order[-1]

    def _first(self) -> int:
        """Requires: something is open."""
        order, open_messages = self._order, self._open
        while order[0] not in open_messages:
            order.popleft()
        return order[0]

    # ---- emptying

    def finish(self, offsets: Iterable[int]) -> None:
        """The messages at these are consumed, or have been handed over to the retry topic."""
        count, size = 0, 0
        for offset in offsets:
            finished = self._open.pop(offset, None)
            if finished is not None:
                count += 1
                size += finished[1]
        self._count(-count, -size)
        if not self._open:
            self._order.clear()

    def committable(self) -> int:
        """The offset from which a new owner of this queue should go on."""
        return self._first() if self.count else self.pulled_to

    def oldest(self, at_most: int) -> list[ReceivedMessage]:
        """The first open messages; they stay open until they are finished."""
        in_order = (self._open[offset][0] for offset in self._order if offset in self._open)
        return list(islice(in_order, at_most))

    def replace(self, offset: int, message: ReceivedMessage) -> None:
        """This message, as it was pulled, instead of what a listener has made of it."""
        if (replaced := self._open.get(offset)) is not None:
            self._open[offset] = message, replaced[1]

    # ---- state

    def is_locked(self, now: float) -> bool:
        """Whether the broker's lock on this queue is ours and fresh."""
        return self.locked and now - self.last_lock <= LOCK_VALID_MS

    def is_stalled(self, now: float) -> bool:
        """Whether this queue has not been pulled for two minutes."""
        return now - self.last_pull > PULL_STALL_MS

    def drop(self) -> None:
        """The queue is no longer ours. Listeners finish the messages that they have, but nothing is committed."""
        if not self.dropped:
            for totals in self.totals:
                totals.count -= self.count
                totals.bytes -= self.bytes
            self.dropped = True

    def __repr__(self) -> str:
        state = "dropped" if self.dropped else f"{self.count} open, pulled to {self.pulled_to}"
        return f"<ProcessQueue {self.queue}: {state}>"
