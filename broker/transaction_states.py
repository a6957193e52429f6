"""Which half messages have ended: the bookkeeping that lets the first end of a transaction win.

A half message has ended when it was committed, rolled back, given up, or put into the half queue again as a newer
copy, which then represents the transaction. `done` is the first offset of the half queue that has not ended, which
RocketMQ stores as the offset of CID_RMQ_SYS_TRANS; a set holds the later ones that have. The op queue has an entry for
every decided end; `op_done` is its first entry that is still needed to know the half messages after `done`.

A producer may end a transaction under the offset of any of its copies. Its newest copy is found by the `key` of the
message, which all copies share. Pure.

Invariants: everything below `done` has ended, `done` itself has not; `op_done` only passes entries about half messages
below `done`; both only grow.

Java: broker/transaction/queue/TransactionalMessageServiceImpl.java (removeMap, doneOpOffset)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """The place of a half message: in the half queue, and in the log."""

    offset: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class TransactionStatistics:
    done: int
    op_done: int
    ended: int
    copies: int


class TransactionStates:
    """The transactions of one half queue."""

    def __init__(self, done: int, op_done: int) -> None:
        self.done = done
        self.op_done = op_done
        self._ended: set[int] = set()
        self._ops: deque[tuple[int, int]] = deque()  # op offset, highest half offset it refers to
        self._copies: dict[bytes, Place] = {}  # key of a transaction that continues in a copy -> the copy
        self._newest: dict[bytes, int] = {}  # while learning: key -> its newest message so far

    def is_over(self, offset: int) -> bool:
        return offset < self.done or offset in self._ended

    def copy_of(self, key: bytes) -> Place | None:
        """The copy in which a transaction continues, if it was put back and is not over."""
        return self._copies.get(key)

    def ended(self, offset: int, key: bytes) -> None:
        """Committed, rolled back or given up."""
        self._ended.add(offset)
        copy = self._copies.get(key)
        if copy is not None and copy.offset == offset:
            del self._copies[key]
        self._advance()

    def put_back(self, offset: int, copy: Place, key: bytes) -> None:
        """The message is in the half queue again, at `copy`."""
        self._ended.add(offset)
        self._copies[key] = copy
        self._advance()

    def resumed(self, copy: Place, key: bytes) -> None:
        """A message that was given up is in the half queue again."""
        self._copies[key] = copy

    def learn(self, offset: int, key: bytes) -> None:
        """While learning, in the order of the queue: a message that was never put back."""
        self._newest[key] = offset

    def learn_copy(self, copy: Place, key: bytes) -> None:
        """While learning: a copy, which now represents the message of its key."""
        older = self._newest.get(key)
        if older is not None:
            self._ended.add(older)
        self._newest[key] = copy.offset
        self._copies[key] = copy

    def finish_learning(self) -> None:
        """The whole queue has been learned."""
        self._newest = {}
        self._advance()

    def op_written(self, op_offset: int, offsets: Iterable[int]) -> None:
        """The op queue has an entry there about these half messages. REQUIRES calls in the order of the queue."""
        self._ops.append((op_offset, max(offsets, default=-1)))
        self._advance()

    def skip_to(self, done: int, op_done: int) -> None:
        """Everything before was deleted from the queues with old files."""
        self._ended = {offset for offset in self._ended if offset >= done}
        self.done = max(self.done, done)
        self.op_done = max(self.op_done, op_done)
        self._copies = {key: copy for key, copy in self._copies.items() if copy.offset >= done}
        self._advance()

    def statistics(self) -> TransactionStatistics:
        return TransactionStatistics(self.done, self.op_done, len(self._ended), len(self._copies))

    def __repr__(self) -> str:
        return f"<TransactionStates {self.statistics()}>"

    def _advance(self) -> None:
        while self.done in self._ended:
            self._ended.remove(self.done)
            self.done += 1
        while self._ops and self._ops[0][1] < self.done:
            op_offset, _ = self._ops.popleft()
            self.op_done = max(self.op_done, op_offset + 1)
