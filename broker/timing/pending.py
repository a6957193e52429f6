"""The messages waiting for their delivery time: pure, 16 bytes per message, its time (ms) and its place in the timer's
queue.

Distant times are in buckets of 65 s, unsorted; when its time comes, or when it has grown large, a bucket is spread over
buckets of 256 ms, each of which is sorted when its own time comes. numpy sorts 16-bit numbers by radix, so that
spreading 32,768 messages takes 2 ms.

Invariant: each place is in exactly one bucket until it is taken or removed.

Java: store/timer/TimerWheel.java, TimerLog.java
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

COARSE_BITS: Final = 16
FINE_BITS: Final = 8
NEVER: Final = (1 << 63) - 1
# Removed places still in their buckets: 6 MB.
_MAX_REMOVED: Final = 65_536
_TAKEN_AT_ONCE: Final = 1024
_LARGE: Final = 32_768  # messages of a 65 s bucket that is spread early


class Pending:
    """See the module. Times may be in the past: these come first."""

    def __init__(self) -> None:
        self._coarse: dict[int, array[int]] = {}  # by due >> COARSE_BITS: due, place, due, place ...
        self._coarse_order: list[int] = []
        self._fine: dict[int, array[int]] = {}  # by due >> FINE_BITS
        self._fine_order: list[int] = []
        self._near: list[tuple[int, int]] = []  # a heap; the first part of `_sorted`, and late arrivals
        self._sorted: NDArray[numpy.int64] = _NOTHING  # the rest of the opened fine bucket, beyond `_near`
        self._opened_coarse = self._opened_fine = -NEVER  # buckets up to these have been opened
        self._spread: set[int] = set()  # 65 s buckets that were spread early
        self._removed: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, place: int) -> None:
        self._count += 1
        if due >> FINE_BITS <= self._opened_fine:
            heappush(self._near, (due, place))
            return
        number = due >> COARSE_BITS
        if number <= self._opened_coarse or number in self._spread:
            _put(self._fine, self._fine_order, due >> FINE_BITS, (due, place))
        elif _put(self._coarse, self._coarse_order, number, (due, place)) > 2 * _LARGE:
            self._spread.add(number)
            self._spread_out(number)

    def add_many(self, pairs: NDArray[numpy.int64]) -> None:
        """Rows of due and place. REQUIRES that nothing has been opened yet."""
        import numpy

        if not len(pairs):
            return
        numbers = pairs[:, 0] >> COARSE_BITS
        order = numpy.argsort(numbers, kind="stable")
        pairs, numbers = pairs[order], numbers[order]
        firsts = numpy.flatnonzero(numpy.diff(numbers, prepend=numbers[0] - 1))
        for begin, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(pairs)], strict=True):
            number = int(numbers[begin])
            bucket = self._coarse.get(number)
            if bucket is None:
                bucket = self._coarse[number] = array("q")
                heappush(self._coarse_order, number)
            bucket.frombytes(pairs[begin:end].tobytes())
        self._count += len(pairs)

    def next_due(self) -> int:
        """A lower bound of the next due time; NEVER if there is none."""
        if self._near or len(self._sorted):
            self._fill()
            near = self._near[0][0]
        else:
            near = NEVER
        fine = self._fine_order[0] << FINE_BITS if self._fine_order else NEVER
        return min(near, fine, self._coarse_order[0] << COARSE_BITS if self._coarse_order else NEVER)

    def take(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return due messages, the earliest first, equals in the order of places."""
        due_messages: list[tuple[int, int]] = []
        while len(due_messages) < limit:
            self._open(now)
            if not self._near or self._near[0][0] > now:
                break
            due, place = heappop(self._near)
            if place in self._removed:
                self._removed.discard(place)
                continue
            due_messages.append((due, place))
        self._count -= len(due_messages)
        return due_messages

    def at(self, due: int, limit: int) -> list[int]:
        """The places of messages for exactly that time, at most that many."""
        rows = self._rows_near(due)
        places = rows[rows[:, 0] == due][: limit + len(self._removed), 1].tolist()
        return [place for place in places if place not in self._removed][:limit]

    def has(self, due: int, place: int) -> bool:
        """Whether a message waits."""
        rows = self._rows_near(due)
        return place not in self._removed and bool(((rows[:, 0] == due) & (rows[:, 1] == place)).any())

    def _rows_near(self, due: int) -> NDArray[numpy.int64]:
        """The contents of the bucket for a time."""
        import numpy

        bucket = self._coarse.get(due >> COARSE_BITS) or self._fine.get(due >> FINE_BITS)
        if bucket:
            return _pairs(bucket)
        return numpy.concatenate([_rows(self._sorted), _rows(self._near)])

    def remove(self, due: int, place: int) -> None:
        """REQUIRES that it is present."""
        self._removed.add(place)
        self._count -= 1
        if len(self._removed) > _MAX_REMOVED:
            self._sweep()

    def rows(self) -> NDArray[numpy.int64]:
        """All of them, in no order: rows of due and place."""
        import numpy

        parts = [_pairs(bucket) for buckets in (self._coarse, self._fine) for bucket in buckets.values()]
        parts += [_rows(self._sorted), _rows(self._near)]
        rows = numpy.concatenate(parts)
        return self._without_removed(rows)

    def before(self, place: int) -> Iterator[tuple[int, int]]:
        """(due, place) of messages before a place of the queue."""
        rows = self.rows()
        yield from map(tuple, rows[rows[:, 1] < place].tolist())

    def _open(self, now: int) -> None:
        """Open buckets that may hold due messages, until the earliest of all is in `_near`."""
        while True:
            self._fill()
            while self._coarse_order and self._coarse_order[0] in self._spread:
                self._spread.discard(number := heappop(self._coarse_order))
                self._opened_coarse = max(self._opened_coarse, number)
            fine = self._fine_order[0] << FINE_BITS if self._fine_order else NEVER
            coarse = self._coarse_order[0] << COARSE_BITS if self._coarse_order else NEVER
            first = min(fine, coarse)
            if first > now or (self._near and self._near[0][0] < first):
                return
            if fine < coarse:
                self._open_fine()
            else:
                self._open_coarse()

    def _open_coarse(self) -> None:
        number = heappop(self._coarse_order)
        self._opened_coarse = max(self._opened_coarse, number)
        self._spread_out(number)

    def _spread_out(self, number: int) -> None:
        """Spread a 65 s bucket over 256 ms buckets."""
        import numpy

        pairs = _pairs(self._coarse.pop(number))
        steps = ((pairs[:, 0] >> FINE_BITS) - (number << COARSE_BITS >> FINE_BITS)).astype(numpy.uint16)
        order = numpy.argsort(steps, kind="stable")
        pairs, steps = pairs[order], steps[order]
        firsts = numpy.flatnonzero(numpy.diff(steps.astype(numpy.int32), prepend=-1))
        for begin, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(pairs)], strict=True):
            bucket = int(pairs[begin, 0]) >> FINE_BITS
            if bucket <= self._opened_fine:  # the clock was set back
                for due, place in pairs[begin:end].tolist():
                    heappush(self._near, (due, place))
                continue
            if bucket not in self._fine:
                self._fine[bucket] = array("q")
                heappush(self._fine_order, bucket)
            self._fine[bucket].frombytes(pairs[begin:end].tobytes())

    def _open_fine(self) -> None:
        import numpy

        number = heappop(self._fine_order)
        pairs = _pairs(self._fine.pop(number))
        self._opened_fine = max(self._opened_fine, number)
        steps = (pairs[:, 0] - (number << FINE_BITS)).astype(numpy.uint16)
        pairs = pairs[numpy.argsort(steps, kind="stable")]
        self._sorted = numpy.concatenate([self._sorted, pairs]) if len(self._sorted) else pairs

    def _fill(self) -> None:
        """`_near` begins with the earliest of `_sorted`, if there is any."""
        if len(self._sorted) and (not self._near or self._near[0] > tuple(self._sorted[0].tolist())):
            batch, self._sorted = self._sorted[:_TAKEN_AT_ONCE], self._sorted[_TAKEN_AT_ONCE:]
            self._near += map(tuple, batch.tolist())
            heapify(self._near)

    def _sweep(self) -> None:
        for buckets in (self._coarse, self._fine):
            for number, bucket in buckets.items():
                buckets[number] = array("q", self._without_removed(_pairs(bucket)).tobytes())
        self._near = [pair for pair in self._near if pair[1] not in self._removed]
        heapify(self._near)
        self._sorted = self._without_removed(self._sorted)
        self._removed.clear()

    def _without_removed(self, rows: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        if not self._removed or not len(rows):
            return rows
        import numpy

        removed = numpy.fromiter(self._removed, numpy.int64, len(self._removed))
        return rows[~numpy.isin(rows[:, 1], removed)]

    def __repr__(self) -> str:
        return f"<Pending {self._count}>"


_NOTHING: Final[Any] = ()  # no array: a broker without delays does not load numpy, 60 ms and 15 MB


def _put(buckets: dict[int, array[int]], order: list[int], number: int, pair: tuple[int, int]) -> int:
    """Returns the resulting number of values in the bucket."""
    bucket = buckets.get(number)
    if bucket is None:
        bucket = buckets[number] = array("q")
        heappush(order, number)
    bucket.extend(pair)
    return len(bucket)


def _pairs(bucket: array[int]) -> NDArray[numpy.int64]:
    """A copy: a view would prevent the array from growing."""
    import numpy

    return numpy.array(bucket, numpy.int64).reshape(-1, 2)


def _rows(table: Any) -> NDArray[numpy.int64]:
    import numpy

    return numpy.asarray(table, numpy.int64).reshape(-1, 2)
