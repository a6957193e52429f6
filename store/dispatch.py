"""From the log to queues and index: appended records are filed once a turn, without reading the log again.

`put` only notes them. `settle`, once a turn, writes the queue entries and then moves the watermarks, so that the tasks
they wake find everything in place. With a `limit` (a broker whose replicas elect their master) only what lies below it
is filed, so that nobody reads what may yet be cut off.

The keys of messages gather, over many turns, until there are enough of them to be hashed and entered together: 0.2 µs
a key of five hundred, 1.2 of fifty, 3 of one alone. A reader of the index has them entered first (`enter_keys`), the
queues' flush enters them every second, and after a crash recovery enters the rest.

A message is noted only when its queue has room for its entry. What can fail here is the index on a full disk, which
stops it where it stands: what could not be filed stays noted, the store takes no more messages, and the next `settle`
goes on from there. So dispatch is in order and without gaps in any case.

Invariant: `dispatched <= appended`; entries of one queue are written in the order of its offsets.

Java: store/DefaultMessageStore.java (ReputMessageService, CommitLogDispatcher…)
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rocketlet.common.java_hashes import hash_column, string_hashes
from rocketlet.common.java_numbers import INT32_MAX, utf8_hash
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_ext import ConsumeQueueExt
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.index_file import IndexItem
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, entries_of
from rocketlet.store.layout.index_layout import IndexColumns
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.watermark import Watermark

if TYPE_CHECKING:
    from numpy.typing import NDArray

# queue, queue offset (-1: no entry, for transactions and deleted queues), log offset, size, tags code, store timestamp,
# keys, filter bits
Noted = tuple[ConsumeQueue, int, int, int, int, int, "tuple[bytes, ...] | list[bytes]", bytes]

_MANY = 40  # from this many keys on numpy is faster
_ENOUGH = 512  # keys are not worth waiting longer for more of them


class LastRecord(NamedTuple):
    """Where the newest filed record is, and when it was stored."""

    log_offset: int
    size: int
    store_timestamp: int


class NotedEntries(NamedTuple):
    """Entries of one queue that follow each other, packed."""

    queue: ConsumeQueue
    queue_offset: int
    entries: bytes

    def parted(self, log_offset: int) -> tuple[NotedEntries, NotedEntries]:
        """Those below a log offset, and the others."""
        queue, first, entries = self
        count = int(entries_of(entries)["log_offset"].searchsorted(log_offset))
        size = count * ENTRY_SIZE
        return NotedEntries(queue, first, entries[:size]), NotedEntries(queue, first + count, entries[size:])


@dataclass(slots=True, eq=False)
class NotedRecords:
    """Records that follow each other in the log, of any queues. `entries` and `keys` are those not filed yet."""

    log_offsets: NDArray[Any]
    sizes: NDArray[Any]
    timestamps: NDArray[Any]
    entries: list[NotedEntries]
    keys: IndexColumns

    @property
    def last(self) -> LastRecord:
        return LastRecord(int(self.log_offsets[-1]), int(self.sizes[-1]), int(self.timestamps[-1]))

    @property
    def first_end(self) -> int:
        return int(self.log_offsets[0] + self.sizes[0])

    def split_off(self, limit: int) -> NotedRecords:
        """Part with the records that end at or before a log offset. REQUIRES that some do and some do not."""
        count = int((self.log_offsets + self.sizes).searchsorted(limit, "right"))
        begin = int(self.log_offsets[count])
        parted = [entries.parted(begin) for entries in self.entries]
        keys = int(self.keys.log_offsets.searchsorted(begin))
        below = NotedRecords(
            self.log_offsets[:count], self.sizes[:count], self.timestamps[:count],
            [noted for noted, _ in parted if noted.entries], self.keys.first(keys),
        )  # fmt: skip
        self.log_offsets, self.sizes = self.log_offsets[count:], self.sizes[count:]
        self.timestamps = self.timestamps[count:]
        self.entries = [noted for _, noted in parted if noted.entries]
        self.keys = self.keys.after(keys)
        return below


AnyNoted = Noted | NotedRecords


class Dispatch:
    """The records that are appended and not filed yet, and their filing."""

    def __init__(self, queues: ConsumeQueueTable, index: MessageIndex, *, with_index: bool) -> None:
        self._queues = queues
        self._index = index
        self._with_index = with_index
        self._keys: list[bytes] = []  # keys noted for the index, hashed together ...
        self._offsets: list[int] = []  # ... and the log offsets ...
        self._times: list[int] = []  # ... and store timestamps of their messages
        self._hashed: list[list[IndexItem] | IndexColumns] = []  # not entered yet
        self._hashed_count = 0
        self._is_stuck = False  # the disk had no room for keys
        self._touched: list[ConsumeQueue] = []  # queues with a watermark that is waited for
        self.dispatched = Watermark()
        self.noted: list[AnyNoted] = []
        self.last: LastRecord | None = None  # newest record whose queue entry is written
        self.spares_numpy = False  # while it is being imported, who asks for it waits
        self.limit: int | None = None  # records that end past it stay noted

    @property
    def is_behind(self) -> bool:
        """Whether something that may be filed is not filed yet."""
        due = self.noted and (self.limit is None or _first_end_of(self.noted[0]) <= self.limit)
        return bool(due or self._is_stuck)

    @property
    def has_keys(self) -> bool:
        """Whether keys wait to be entered."""
        return bool(self._keys or self._hashed)

    def settle(self, *, all_of_it: bool = False) -> None:
        """File what was noted, below the limit unless all of it is wanted. Raises OSError where the disk has no room,
        and can be called again."""
        noted, kept_back = self.noted, list[AnyNoted]()
        if self.limit is not None and not all_of_it and noted:
            below = bisect_right(noted, self.limit, key=_end_of)
            noted, kept_back = noted[:below], noted[below:]
            if kept_back and isinstance(kept_back[0], NotedRecords) and kept_back[0].first_end <= self.limit:
                noted.append(kept_back[0].split_off(self.limit))
        if not noted and not self._is_stuck:
            return
        filed = 0
        try:
            for filed, note in enumerate(noted):  # noqa: B007 - after an error it says how far we came
                if isinstance(note, NotedRecords):
                    self._file_records(note)
                else:
                    self._file(note)
            filed = len(noted)
        finally:
            self.noted = noted[filed:] + kept_back
            if filed:
                self.last = _last_of(noted[filed - 1])
        if len(self._keys) + self._hashed_count >= _ENOUGH or self._is_stuck:
            self._enter_keys()
        touched, self._touched = self._touched, []
        for queue in touched:
            assert queue.watermark is not None
            queue.watermark.advance(queue.end)
        assert self.last is not None
        self.dispatched.advance(self.last.log_offset + self.last.size)

    def enter_keys(self) -> None:
        """Enter all keys now. On a full disk they go on waiting, and the next `settle` raises."""
        with suppress(OSError):
            self._enter_keys()

    def forget_dropped(self) -> None:
        """Some queues were dropped: what is noted for such gets no entry, only its keys."""
        for place, note in enumerate(self.noted):
            if isinstance(note, NotedRecords):
                note.entries = [entries for entries in note.entries if self._is_live(entries.queue)]
            elif not self._is_live(note[0]):
                self.noted[place] = (note[0], -1, *note[2:])

    def _is_live(self, queue: ConsumeQueue) -> bool:
        return self._queues.queues.get((queue.topic, queue.queue_id)) is queue

    def _file(self, note: Noted) -> None:
        queue, queue_offset, log_offset, size, tags_code, timestamp, keys, bits = note
        if queue_offset >= 0:
            if queue.ext is not None and self._queues.writes_ext:
                tags_code = _append_unit(queue.ext, tags_code, timestamp, bits)
            queue.write(queue_offset, log_offset, size, tags_code)
            self._touch(queue)
        if keys and self._with_index:
            prefix = queue.hash_prefix
            for key in keys:
                self._keys.append(prefix + key)
                self._offsets.append(log_offset)
                self._times.append(timestamp)

    def _file_records(self, note: NotedRecords) -> None:
        while note.entries:  # what is filed is gone from here, should the disk be full half-way
            self._file_entries(*note.entries[-1])
            note.entries.pop()
        if self._with_index and len(note.keys.hashes):
            self._hash_keys()
            self._hashed.append(note.keys)
            self._hashed_count += len(note.keys.hashes)

    def _file_entries(self, queue: ConsumeQueue, queue_offset: int, entries: bytes) -> None:
        written = max(queue.end - queue_offset, 0)  # before the disk was full
        queue.write_many(queue_offset + written, entries[written * ENTRY_SIZE :])
        self._touch(queue)

    def _touch(self, queue: ConsumeQueue) -> None:
        if not queue.is_dirty:
            queue.is_dirty = True
            self._queues.dirty.append(queue)
        if queue.watermark is not None:
            self._touched.append(queue)

    def _hash_keys(self) -> None:
        """Hash the keys that were noted, all together."""
        keys, offsets, times = self._keys, self._offsets, self._times
        if not keys:
            return
        self._keys, self._offsets, self._times = [], [], []
        self._hashed_count += len(keys)
        if len(keys) < _MANY or self.spares_numpy:
            # The absolute value, and 0 for the one number that has none (`java_numbers.index_hash`).
            signed = map(utf8_hash, keys) if self.spares_numpy else string_hashes(keys)
            hashes = [abs(number) & INT32_MAX for number in signed]
            self._hashed.append(list(zip(hashes, offsets, times, strict=True)))
            return
        import numpy

        column = numpy.abs(hash_column(keys).astype(numpy.int64)) & INT32_MAX
        self._hashed.append(IndexColumns(column, numpy.array(offsets), numpy.array(times)))

    def _enter_keys(self) -> None:
        """Enter all keys. Raises OSError, with what is left still there."""
        self._hash_keys()
        self._is_stuck = bool(self._hashed)
        if len(self._hashed) > 1:
            self._hashed = _joined(self._hashed)
        hashed = self._hashed
        while hashed:
            first = hashed[0]
            if isinstance(first, IndexColumns):
                count = self._index.put_columns(first)
                remaining: list[IndexItem] | IndexColumns = first.after(count)
                is_empty = count == len(first.hashes)
            else:
                remaining = first[self._index.put_some(first) :]
                is_empty = not remaining
            if is_empty:
                del hashed[0]
            else:
                hashed[0] = remaining
        self._hashed_count, self._is_stuck = 0, False


def _joined(hashed: list[list[IndexItem] | IndexColumns]) -> list[list[IndexItem] | IndexColumns]:
    """Columns that follow each other as one: each call of numpy costs a microsecond, however long the column."""
    joined: list[list[IndexItem] | IndexColumns] = []
    for are_columns, group in groupby(hashed, lambda items: isinstance(items, IndexColumns)):
        if are_columns:
            joined.append(IndexColumns.joined(cast("list[IndexColumns]", list(group))))
        else:
            joined += group
    return joined


def _append_unit(ext: ConsumeQueueExt, tags_code: int, timestamp: int, bits: bytes) -> int:
    """Its address; where it cannot be written the plain tags code, and the filter has to read the message."""
    try:
        return ext.append(tags_code, timestamp, bits)
    except OSError:
        return tags_code


def _end_of(note: AnyNoted) -> int:
    last = _last_of(note)
    return last.log_offset + last.size


def _first_end_of(note: AnyNoted) -> int:
    return note.first_end if isinstance(note, NotedRecords) else _end_of(note)


def _last_of(note: AnyNoted) -> LastRecord:
    if isinstance(note, NotedRecords):
        return note.last
    return LastRecord(note[2], note[3], note[5])
