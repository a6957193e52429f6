"""What consumers of a group have taken of one queue by pop and not acknowledged: pure, 34 bytes a message.

A message is taken for a while. Until then, `due`, nobody else gets it; from then on whoever pops gets it again, with
one more in `times`. `popped` tells one delivery of it from the next. A message *held* was read and never delivered,
because one of its message group is with a consumer (`times` 0, `due` 0).

Entries stand in the order of their offsets, in blocks of arrays: a million of them are 250 blocks, and the arrays are
searched by bisection and scanned by numpy, 5 µs a block. Acknowledged ones stay as DONE until most of a block is.

Invariants: `next` lies behind every entry; `count` is the number of entries that are not done.

Java: broker/processor/PopBufferMergeService.java, store/pop/PopCheckPoint.java
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

DONE: Final = -1  # as `due`
NEVER: Final = (1 << 63) - 1
MOST_TIMES: Final = 0xFFFF
_BLOCK = 4096  # entries
_ONCE = array("H", [1]) * _BLOCK
_NO_KEY = array("q", [0]) * _BLOCK
_ALL_DONE = array("q", [DONE] * 64)


class Entry(NamedTuple):
    """One message. `key` stands for its message group, 0 for none."""

    offset: int
    due: int
    popped: int
    times: int
    key: int


class Place(NamedTuple):
    """Where an entry stands; good until the next change of the table."""

    block: Block
    at: int


class Block:
    """Entries of neighbouring offsets."""

    __slots__ = ("alive", "due", "keys", "offsets", "popped", "soonest", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.due = array("q")
        self.popped = array("q")
        self.times = array("H")
        self.keys = array("q")
        self.alive = 0
        self.soonest = NEVER  # no entry is due before; may be too early

    def insert(self, at: int, entry: Entry) -> None:
        self.offsets.insert(at, entry.offset)
        self.due.insert(at, entry.due)
        self.popped.insert(at, entry.popped)
        self.times.insert(at, entry.times)
        self.keys.insert(at, entry.key)
        self.alive += entry.due != DONE
        if entry.due != DONE:
            self.soonest = min(self.soonest, entry.due)

    def entry(self, at: int) -> Entry:
        return Entry(self.offsets[at], self.due[at], self.popped[at], self.times[at], self.keys[at])

    def due_at(self, now: int, most: int) -> list[int]:
        """The places of entries that are due, the first `most`."""
        import numpy  # 60 ms that a broker without pop does not pay

        if self.soonest > now:
            return []
        due = numpy.frombuffer(self.due, numpy.int64)
        found: list[int] = numpy.flatnonzero((due <= now) & (due != DONE))[:most].tolist()
        if not found:
            waiting = due[due != DONE]
            self.soonest = int(waiting.min()) if len(waiting) else NEVER
        return found

    def dead_at(self, now: int, most_times: int) -> list[int]:
        """The places of entries that are due and were delivered so often."""
        import numpy  # 60 ms that a broker without pop does not pay

        if self.soonest > now:
            return []
        due, times = numpy.frombuffer(self.due, numpy.int64), numpy.frombuffer(self.times, numpy.uint16)
        found: list[int] = numpy.flatnonzero((due <= now) & (due != DONE) & (times >= most_times)).tolist()
        return found

    def soonest_after(self, now: int) -> int:
        """When the next entry is due that is not due yet; may be too early."""
        import numpy  # 60 ms that a broker without pop does not pay

        if self.soonest > now:
            return self.soonest
        due = numpy.frombuffer(self.due, numpy.int64)
        waiting = due[due > now]
        return int(waiting.min()) if len(waiting) else NEVER

    def shrink(self) -> None:
        """Let go of what is done."""
        import numpy  # 60 ms that a broker without pop does not pay

        keep = numpy.frombuffer(self.due, numpy.int64) != DONE
        for name in ("offsets", "due", "popped", "times", "keys"):
            old = getattr(self, name)
            setattr(self, name, array(old.typecode, numpy.frombuffer(old, old.typecode)[keep].tobytes()))


@dataclass(slots=True)
class Counts:
    """What a table holds at a moment."""

    invisible: int = 0
    due: int = 0
    held: int = 0


class InFlight:
    """The table of one queue of one group. `next` is the first offset that was never looked at."""

    __slots__ = ("_blocks", "_firsts", "count", "next")

    def __init__(self, next_offset: int = 0) -> None:
        self.next = next_offset
        self.count = 0
        self._blocks: list[Block] = []
        self._firsts: list[int] = []  # the first offset of each block

    def put(self, entry: Entry) -> None:
        """Add an entry, or replace the one of its offset."""
        found = self._find(entry.offset)
        if found is not None:
            block, at = found
            self.count += (entry.due != DONE) - (block.due[at] != DONE)
            block.alive += (entry.due != DONE) - (block.due[at] != DONE)
            self._set(block, at, entry)
        elif entry.due != DONE:
            block = self._block_for(entry.offset)
            block.insert(bisect_left(block.offsets, entry.offset), entry)
            self.count += 1
        self.next = max(self.next, entry.offset + 1)

    def append(self, offsets: range, due: int, popped: int) -> None:
        """Add messages of no group that are delivered for the first time, all at once: 32 take 3 µs, and 60 one by one.

        REQUIRES offsets that lie behind all others.
        """
        import numpy  # 60 ms that a broker without pop does not pay

        at, end = 0, len(offsets)
        blocks = self._blocks
        while at < end:
            block = blocks[-1] if blocks else None
            if block is None or len(block.offsets) >= _BLOCK:
                block = Block()
                self._blocks.append(block)
                self._firsts.append(offsets[at])
            some = offsets[at : at + _BLOCK - len(block.offsets)]
            count = len(some)
            # An array times n is copied, where a list is looked at number by number.
            block.offsets.frombytes(numpy.arange(some.start, some.stop, dtype=numpy.int64).tobytes())
            block.due += array("q", (due,)) * count
            block.popped += array("q", (popped,)) * count
            block.times += _ONCE[:count]
            block.keys += _NO_KEY[:count]
            block.alive += count
            block.soonest = min(block.soonest, due)
            at += count
        self.count += end
        self.next = max(self.next, offsets.stop)

    def put_first(self, offsets: range, due: int, popped: int) -> None:
        """`append`, of offsets that may lie anywhere."""
        if offsets.start >= self.next:
            self.append(offsets, due, popped)
            return
        for offset in offsets:
            self.put(Entry(offset, due, popped, 1, 0))

    def get(self, offset: int) -> Entry | None:
        """The entry of an offset, unless it is done."""
        found = self._find(offset)
        if found is None or found.block.due[found.at] == DONE:
            return None
        return found.block.entry(found.at)

    def done(self, offset: int) -> bool:
        """Acknowledge; whether there was something to acknowledge."""
        found = self._find(offset)
        if found is None or found.block.due[found.at] == DONE:
            return False
        found.block.due[found.at] = DONE
        self._now_done(found.block, 1)
        return True

    def _now_done(self, block: Block, count: int) -> None:
        block.alive -= count
        self.count -= count
        if block.alive == 0:
            self._drop(block)
        elif len(block.offsets) > 64 and block.alive * 4 < len(block.offsets):
            self._shrink(block)

    def done_all(self, offsets: Sequence[int]) -> Sequence[int]:
        """Acknowledge several; those that there was something to acknowledge of. What was delivered together lies
        together, and goes together: 32 take 5 µs, and 50 one by one."""
        count = len(offsets)
        if count == 1:
            return offsets if self.done(offsets[0]) else ()
        found = self._find(offsets[0]) if count else None
        if found is not None:
            block, end = found.block, found.at + count
            if isinstance(offsets, range):  # as each offset is there once, and in order
                together = end <= len(block.offsets) and block.offsets[end - 1] == offsets[-1]
            else:
                together = block.offsets[found.at : end] == array("q", offsets)
            if together and DONE not in block.due[found.at : end]:
                block.due[found.at : end] = _ALL_DONE[:count] if count <= len(_ALL_DONE) else array("q", [DONE]) * count
                self._now_done(block, count)
                return offsets
        return [offset for offset in offsets if self.done(offset)]

    def due(self, now: int, most: int) -> list[Entry]:
        """The first entries that are due."""
        found: list[Entry] = []
        for block in self._blocks:
            if block.soonest <= now:
                found += map(block.entry, block.due_at(now, most - len(found)))
                if len(found) >= most:
                    break
        return found

    def dead(self, now: int, most_times: int, most: int) -> list[Entry]:
        """The first entries that are due and were delivered so often."""
        found: list[Entry] = []
        for block in self._blocks:
            found += map(block.entry, block.dead_at(now, most_times)[: most - len(found)])
            if len(found) >= most:
                break
        return found

    def soonest_after(self, now: int) -> int:
        """When the next entry is due that is not due yet, NEVER where there is none; may be too early."""
        return min((block.soonest_after(now) for block in self._blocks), default=NEVER)

    @property
    def floor(self) -> int:
        """The lowest offset that is not done: where a group would go on that knows nothing of this table."""
        import numpy  # 60 ms that a broker without pop does not pay

        if not self._blocks:
            return self.next
        block = self._blocks[0]
        return block.offsets[int((numpy.frombuffer(block.due, numpy.int64) != DONE).argmax())]

    def __iter__(self) -> Iterator[Entry]:
        for block in self._blocks:
            for at, due in enumerate(block.due):
                if due != DONE:
                    yield block.entry(at)

    def __len__(self) -> int:
        return self.count

    def pieces(self) -> Iterator[list[Entry]]:
        """All entries, a block at a time; the table may change between two of them."""
        last = -1
        while True:
            at = bisect_right(self._firsts, last)
            # The block that holds what follows `last`: maybe the one before, which has grown or was joined.
            at = at - 1 if at and self._blocks[at - 1].offsets[-1] > last else at
            if at >= len(self._blocks):
                return
            block = self._blocks[at]
            entries = [block.entry(index) for index, due in enumerate(block.due) if due != DONE]
            piece = [entry for entry in entries if entry.offset > last]
            last = block.offsets[-1]
            if piece:
                yield piece

    def clear(self, next_offset: int) -> None:
        """Forget everything, and go on there."""
        self._blocks, self._firsts, self.count, self.next = [], [], 0, next_offset

    def keep_between(self, begin: int, end: int) -> int:
        """Forget what lies outside, as its messages are gone; returns how many entries that were."""
        gone = [entry.offset for entry in self if not begin <= entry.offset < end]
        for offset in gone:
            self.done(offset)
        self.next = min(max(self.next, begin), end)
        return len(gone)

    def counts(self, now: int) -> Counts:
        import numpy  # 60 ms that a broker without pop does not pay

        found = Counts()
        for block in self._blocks:
            due = numpy.frombuffer(block.due, numpy.int64)
            times = numpy.frombuffer(block.times, numpy.uint16)
            alive = due != DONE
            found.held += int((alive & (times == 0)).sum())
            found.invisible += int((alive & (due > now)).sum())
            found.due += int((alive & (due <= now) & (times > 0)).sum())
        return found

    # ---- blocks

    def _find(self, offset: int) -> Place | None:
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return None
        block = self._blocks[at]
        index = bisect_left(block.offsets, offset)
        if index == len(block.offsets) or block.offsets[index] != offset:
            return None
        return Place(block, index)

    def _set(self, block: Block, at: int, entry: Entry) -> None:
        block.due[at], block.popped[at] = entry.due, entry.popped
        block.times[at], block.keys[at] = entry.times, entry.key
        if entry.due != DONE:
            block.soonest = min(block.soonest, entry.due)
        elif block.alive == 0:
            self._drop(block)

    def _block_for(self, offset: int) -> Block:
        """The block that an offset belongs into, with room for it."""
        at = max(bisect_right(self._firsts, offset) - 1, 0)
        last = self._blocks[-1] if self._blocks else None
        if last is None or (len(last.offsets) >= _BLOCK and offset > last.offsets[-1]):
            block = Block()
            self._blocks.append(block)
            self._firsts.append(offset)
            return block
        block = self._blocks[at]
        self._firsts[at] = min(self._firsts[at], offset)
        return block

    def _drop(self, block: Block) -> None:
        at = self._index_of(block)
        del self._blocks[at], self._firsts[at]

    def _shrink(self, block: Block) -> None:
        block.shrink()
        at = self._index_of(block)
        self._firsts[at] = block.offsets[0]
        if at and len(self._blocks[at - 1].offsets) + len(block.offsets) <= _BLOCK:
            before = self._blocks[at - 1]
            for name in ("offsets", "due", "popped", "times", "keys"):
                getattr(before, name).extend(getattr(block, name))
            before.alive += block.alive
            before.soonest = min(before.soonest, block.soonest)
            del self._blocks[at], self._firsts[at]

    def _index_of(self, block: Block) -> int:
        return bisect_right(self._firsts, block.offsets[0]) - 1

    def __repr__(self) -> str:
        return f"<InFlight {self.count} below {self.next}>"


@dataclass(frozen=True, slots=True)
class InOrder:
    """What may be delivered in order: `entries` now, of no message group in `busy`, the next others from `soonest`."""

    entries: list[Entry]
    busy: set[int]
    soonest: int


def in_order(entries: Iterable[Entry], now: int, most: int) -> InOrder:
    """Of one queue: a message group whose messages a consumer has is busy, and nobody else gets any of it."""
    table = list(entries)
    busy = {entry.key for entry in table if entry.due > now}
    free = [entry for entry in table if entry.key not in busy][:most]
    soonest = min((entry.due for entry in table if entry.due > now), default=NEVER)
    return InOrder(free, busy, soonest)
