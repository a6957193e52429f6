"""Messages of one queue that a group's consumers have popped and not acknowledged: pure, 34 bytes per message.

A message is invisible until `due`; from then on the next pop gets it, with one more in `times`. `popped` distinguishes
its deliveries. A *held* message was read and never delivered, because another of its message group is in flight
(`times` 0, `due` 0).

Entries are ordered by offset, in blocks of arrays: a million of them are 250 blocks, and the arrays are searched by
bisection and scanned by numpy, 5 µs per block. Acknowledged ones stay as DONE until most of a block is.

Messages delivered together for the first time are nearly always acknowledged together. So the newest deliveries stay
whole, as *runs*, and become entries only when one of them is needed, or when there are many.

Invariants: `next` is greater than every entry; `count` is the number of entries that are not done; runs come after all
blocks, and take no more memory than their entries would.

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
MAX_TIMES: Final = 0xFFFF
_BLOCK = 4096  # entries
_SHORTEST_RUN = 8  # messages: as entries 272 bytes
_MAX_RUNS = 32
_ONCE = array("H", [1]) * _BLOCK
_NO_KEY = array("q", [0]) * _BLOCK
_ALL_DONE = array("q", [DONE] * 64)


class Entry(NamedTuple):
    """One message. `key` identifies its message group, 0 for none."""

    offset: int
    due: int
    popped: int
    times: int
    key: int


class Run(NamedTuple):
    """Messages without a message group, delivered together and for the first time. `stop` is after the last."""

    stop: int
    due: int
    popped: int


class Place(NamedTuple):
    """The position of an entry, valid until the next change of the table."""

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
        self.soonest = NEVER  # no entry is due before this; may be too early

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

    def due_at(self, now: int, limit: int) -> list[int]:
        """The places of entries that are due, the first `limit`."""
        import numpy  # 60 ms that a broker without pop saves

        if self.soonest > now:
            return []
        due = numpy.frombuffer(self.due, numpy.int64)
        places: list[int] = numpy.flatnonzero((due <= now) & (due != DONE))[:limit].tolist()
        if not places:
            waiting = due[due != DONE]
            self.soonest = int(waiting.min()) if len(waiting) else NEVER
        return places

    def dead_at(self, now: int, most_times: int) -> list[int]:
        """The places of due entries that were delivered that often."""
        import numpy  # 60 ms that a broker without pop saves

        if self.soonest > now:
            return []
        due, times = numpy.frombuffer(self.due, numpy.int64), numpy.frombuffer(self.times, numpy.uint16)
        places: list[int] = numpy.flatnonzero((due <= now) & (due != DONE) & (times >= most_times)).tolist()
        return places

    def soonest_after(self, now: int) -> int:
        """When the next entry that is not due yet becomes due; may be too early."""
        import numpy  # 60 ms that a broker without pop saves

        if self.soonest > now:
            return self.soonest
        due = numpy.frombuffer(self.due, numpy.int64)
        waiting = due[due > now]
        return int(waiting.min()) if len(waiting) else NEVER

    def shrink(self) -> None:
        """Drop entries that are done."""
        import numpy  # 60 ms that a broker without pop saves

        keep = numpy.frombuffer(self.due, numpy.int64) != DONE
        for name in ("offsets", "due", "popped", "times", "keys"):
            old = getattr(self, name)
            setattr(self, name, array(old.typecode, numpy.frombuffer(old, old.typecode)[keep].tobytes()))


@dataclass(slots=True)
class Counts:
    """A snapshot of a table's counts."""

    invisible: int = 0
    due: int = 0
    held: int = 0


class InFlight:
    """The table of one queue of one group. `next` is the first offset never examined."""

    __slots__ = ("_blocks", "_firsts", "_runs", "_runs_due", "count", "next")

    def __init__(self, next_offset: int = 0) -> None:
        self.next = next_offset
        self.count = 0
        self._blocks: list[Block] = []
        self._firsts: list[int] = []  # the first offset of each block
        self._runs: dict[int, Run] = {}  # by first offset, in order
        self._runs_due = NEVER  # no run is due before; may be too early

    def put(self, entry: Entry) -> None:
        """Add an entry, or replace the one of its offset."""
        self._expand_runs()
        place = self._find(entry.offset)
        if place is not None:
            block, at = place
            self.count += (entry.due != DONE) - (block.due[at] != DONE)
            block.alive += (entry.due != DONE) - (block.due[at] != DONE)
            self._set(block, at, entry)
        elif entry.due != DONE:
            block = self._block_for(entry.offset)
            block.insert(bisect_left(block.offsets, entry.offset), entry)
            self.count += 1
        self.next = max(self.next, entry.offset + 1)

    def append(self, offsets: range, due: int, popped: int) -> None:
        """Add messages without a message group, delivered for the first time, all at once.

        REQUIRES offsets above all others.
        """
        count = len(offsets)
        if count < _SHORTEST_RUN or len(self._runs) >= _MAX_RUNS:
            self._expand_runs()
        if count < _SHORTEST_RUN:
            self._append(offsets, due, popped)
        else:
            self._runs[offsets.start] = Run(offsets.stop, due, popped)
            if due < self._runs_due:
                self._runs_due = due
        self.count += count
        self.next = max(self.next, offsets.stop)

    def _expand_runs(self) -> None:
        """Turn all runs into entries; adjacent runs of the same moment together."""
        if not self._runs:
            return
        runs, self._runs, self._runs_due = list(self._runs.items()), {}, NEVER
        first, last = runs[0]
        for start, run in runs[1:]:
            if start != last.stop or run.due != last.due or run.popped != last.popped:
                self._append(range(first, last.stop), last.due, last.popped)
                first = start
            last = run
        self._append(range(first, last.stop), last.due, last.popped)

    def _append(self, offsets: range, due: int, popped: int) -> None:
        """Entries above all others: 32 take 3 µs, and 60 one by one."""
        import numpy  # 60 ms that a broker without pop saves

        at, end = 0, len(offsets)
        blocks = self._blocks
        while at < end:
            block = blocks[-1] if blocks else None
            if block is None or len(block.offsets) >= _BLOCK:
                block = Block()
                self._blocks.append(block)
                self._firsts.append(offsets[at])
            part = offsets[at : at + _BLOCK - len(block.offsets)]
            count = len(part)
            # An array times n is copied, whereas a list is converted number by number.
            block.offsets.frombytes(numpy.arange(part.start, part.stop, dtype=numpy.int64).tobytes())
            block.due += array("q", (due,)) * count
            block.popped += array("q", (popped,)) * count
            block.times += _ONCE[:count]
            block.keys += _NO_KEY[:count]
            block.alive += count
            block.soonest = min(block.soonest, due)
            at += count

    def put_first(self, offsets: range, due: int, popped: int) -> None:
        """`append`, for offsets in any position."""
        if offsets.start >= self.next:
            self.append(offsets, due, popped)
            return
        for offset in offsets:
            self.put(Entry(offset, due, popped, 1, 0))

    def get(self, offset: int) -> Entry | None:
        """The entry of an offset, unless it is done."""
        self._expand_runs()
        place = self._find(offset)
        if place is None or place.block.due[place.at] == DONE:
            return None
        return place.block.entry(place.at)

    def done(self, offset: int) -> bool:
        """Acknowledge. Returns whether the entry existed."""
        self._expand_runs()
        place = self._find(offset)
        if place is None or place.block.due[place.at] == DONE:
            return False
        place.block.due[place.at] = DONE
        self._mark_done(place.block, 1)
        return True

    def _mark_done(self, block: Block, count: int) -> None:
        block.alive -= count
        self.count -= count
        if block.alive == 0:
            self._drop(block)
        elif len(block.offsets) > 64 and block.alive * 4 < len(block.offsets):
            self._shrink(block)

    def done_all(self, offsets: Sequence[int]) -> Sequence[int]:
        """Acknowledge several. Returns those that existed. Messages delivered together are adjacent: 32 take less than
        1 µs as a run, 5 µs as entries, and 50 one by one."""
        count = len(offsets)
        if isinstance(offsets, range) and count:
            run = self._runs.get(offsets.start)
            if run is not None and run.stop == offsets.stop:
                del self._runs[offsets.start]
                if not self._runs:
                    self._runs, self._runs_due = {}, NEVER  # a dictionary keeps its size when emptied
                self.count -= count
                return offsets
        if count == 1:
            return offsets if self.done(offsets[0]) else ()
        self._expand_runs()
        place = self._find(offsets[0]) if count else None
        if place is not None:
            block, end = place.block, place.at + count
            if isinstance(offsets, range):  # because each offset occurs once, and in order
                is_adjacent = end <= len(block.offsets) and block.offsets[end - 1] == offsets[-1]
            else:
                is_adjacent = block.offsets[place.at : end] == array("q", offsets)
            if is_adjacent and DONE not in block.due[place.at : end]:
                block.due[place.at : end] = _ALL_DONE[:count] if count <= len(_ALL_DONE) else array("q", [DONE]) * count
                self._mark_done(block, count)
                return offsets
        return [offset for offset in offsets if self.done(offset)]

    def due(self, now: int, limit: int) -> list[Entry]:
        """The first entries that are due."""
        if self._runs_due <= now:
            self._expand_runs()
        entries: list[Entry] = []
        for block in self._blocks:
            if block.soonest <= now:
                entries += map(block.entry, block.due_at(now, limit - len(entries)))
                if len(entries) >= limit:
                    break
        return entries

    def dead(self, now: int, most_times: int, limit: int) -> list[Entry]:
        """The first due entries that were delivered that often."""
        if self._runs_due <= now:
            self._expand_runs()
        entries: list[Entry] = []
        for block in self._blocks:
            entries += map(block.entry, block.dead_at(now, most_times)[: limit - len(entries)])
            if len(entries) >= limit:
                break
        return entries

    def soonest_after(self, now: int) -> int:
        """When the next entry that is not due yet becomes due, NEVER if there is none; may be too early."""
        if self._runs_due <= now:
            self._expand_runs()
        return min([self._runs_due, *[block.soonest_after(now) for block in self._blocks]])

    @property
    def floor(self) -> int:
        """The lowest offset that is not done: where the group would continue without this table."""
        import numpy  # 60 ms that a broker without pop saves

        if not self._blocks:
            return next(iter(self._runs), self.next)
        block = self._blocks[0]
        return block.offsets[int((numpy.frombuffer(block.due, numpy.int64) != DONE).argmax())]

    def __iter__(self) -> Iterator[Entry]:
        self._expand_runs()
        for block in self._blocks:
            for at, due in enumerate(block.due):
                if due != DONE:
                    yield block.entry(at)

    def __len__(self) -> int:
        return self.count

    def pieces(self) -> Iterator[list[Entry]]:
        """All entries, block by block; the table may change in between."""
        last = -1
        while True:
            self._expand_runs()
            at = bisect_right(self._firsts, last)
            # The block after `last`: maybe the previous one, which has grown or was merged.
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
        """Forget everything, and continue at that offset."""
        self._blocks, self._firsts, self.count, self.next = [], [], 0, next_offset
        self._runs, self._runs_due = {}, NEVER

    def keep_between(self, begin: int, end: int) -> int:
        """Drop entries outside, whose messages are gone. Returns their number."""
        dropped = [entry.offset for entry in self if not begin <= entry.offset < end]
        for offset in dropped:
            self.done(offset)
        if self._blocks and self.next > end:
            self._shrink(self._blocks[-1])  # other messages may get the offsets from `end` on
        self.next = min(max(self.next, begin), end)
        return len(dropped)

    def counts(self, now: int) -> Counts:
        import numpy  # 60 ms that a broker without pop saves

        self._expand_runs()
        result = Counts()
        for block in self._blocks:
            due = numpy.frombuffer(block.due, numpy.int64)
            times = numpy.frombuffer(block.times, numpy.uint16)
            alive = due != DONE
            result.held += int((alive & (times == 0)).sum())
            result.invisible += int((alive & (due > now)).sum())
            result.due += int((alive & (due <= now) & (times > 0)).sum())
        return result

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
        """The block for an offset, with room for it."""
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
            previous = self._blocks[at - 1]
            for name in ("offsets", "due", "popped", "times", "keys"):
                getattr(previous, name).extend(getattr(block, name))
            previous.alive += block.alive
            previous.soonest = min(previous.soonest, block.soonest)
            del self._blocks[at], self._firsts[at]

    def _index_of(self, block: Block) -> int:
        return bisect_right(self._firsts, block.offsets[0]) - 1

    def __repr__(self) -> str:
        return f"<InFlight {self.count} below {self.next}>"


@dataclass(frozen=True, slots=True)
class InOrder:
    """What may be delivered in order: `entries` now, not of a message group in `busy`, and others from `soonest`."""

    entries: list[Entry]
    busy: set[int]
    soonest: int


def in_order(entries: Iterable[Entry], now: int, limit: int) -> InOrder:
    """For one queue: a message group with a message in flight is busy, and nobody else gets any of it."""
    table = list(entries)
    busy = {entry.key for entry in table if entry.due > now}
    free = [entry for entry in table if entry.key not in busy][:limit]
    soonest = min((entry.due for entry in table if entry.due > now), default=NEVER)
    return InOrder(free, busy, soonest)
