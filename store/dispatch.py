"""From the log to queues and index: appended records are filed once a turn, without reading the log again.

`put` only notes them. `settle`, once a turn, writes the queue entries, hashes the keys of all messages together (2.5 µs
a key one by one, 0.3 together), writes the index entries (0.7 µs a key one by one, 0.3 as columns), and then moves the
watermarks, so that the tasks they wake find everything in place. With a `limit` (a broker whose replicas elect their
master) only what lies below it is filed, so that nobody reads what may yet be cut off.

A message is noted only when its queue has room for its entry. What can fail here is the index on a full disk, which
stops it where it stands: what could not be filed stays noted, the store takes no more messages, and the next `settle`
goes on from there. So dispatch is in order and without gaps in any case.

Invariant: `dispatched <= appended`; entries of one queue are written in the order of its offsets.

Java: store/DefaultMessageStore.java (ReputMessageService, CommitLogDispatcher…)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, cast

from rocketlet.common.java_hashes import hash_column, string_hashes
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_ext import ConsumeQueueExt
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.index_file import IndexItem
from rocketlet.store.layout.index_layout import IndexColumns
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.message_run import NotedRun
from rocketlet.store.watermark import Watermark

# queue, queue offset (-1: no entry, for transactions and deleted queues), log offset, size, tags code, store timestamp,
# keys, filter bits
Noted = tuple[ConsumeQueue, int, int, int, int, int, "tuple[bytes, ...] | list[bytes]", bytes]

_MANY = 40  # from this many keys on numpy is faster


class LastRecord(NamedTuple):
    """Where the newest filed record is, and when it was stored."""

    log_offset: int
    size: int
    store_timestamp: int


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
        self._touched: list[ConsumeQueue] = []  # queues with a watermark that is waited for
        self.dispatched = Watermark()
        self.noted: list[Noted | NotedRun] = []
        self.last: LastRecord | None = None  # newest record whose queue entry is written
        self.limit: int | None = None  # records that end past it stay noted

    @property
    def is_behind(self) -> bool:
        """Whether something that may be filed is not filed yet."""
        due = self.noted and (self.limit is None or _end_of(self.noted[0]) <= self.limit)
        return bool(due or self._keys or self._hashed)

    def settle(self, *, all_of_it: bool = False) -> None:
        """File what was noted, below the limit unless all of it is wanted. Raises OSError where the disk has no room,
        and can be called again."""
        noted, held = self.noted, list[Noted | NotedRun]()
        if self.limit is not None and not all_of_it and noted:
            below = bisect_right(noted, self.limit, key=_end_of)
            noted, held = noted[:below], noted[below:]
        if not noted and not self._hashed:
            return
        filed = 0
        try:
            for filed, note in enumerate(noted):  # noqa: B007 - after an error it says how far we came
                if isinstance(note, NotedRun):
                    self._file_run(note)
                else:
                    self._file(note)
            filed = len(noted)
        finally:
            self.noted = noted[filed:] + held
            if filed:
                self.last = _last_of(noted[filed - 1])
        self._enter_keys()
        touched, self._touched = self._touched, []
        for queue in touched:
            assert queue.watermark is not None
            queue.watermark.advance(queue.end)
        assert self.last is not None
        self.dispatched.advance(self.last.log_offset + self.last.size)

    def forget(self, queues: Iterable[ConsumeQueue]) -> None:
        """These queues are about to be deleted: what is noted for them gets no entry, only its keys."""
        gone = set(queues)
        for place, note in enumerate(self.noted):
            if isinstance(note, NotedRun):
                if note.queue in gone:
                    note.queue_offset = -1
            elif note[0] in gone:
                self.noted[place] = (note[0], -1, *note[2:])

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

    def _file_run(self, note: NotedRun) -> None:
        queue, log_offsets = note.queue, note.log_offsets
        if note.queue_offset >= 0:
            codes = note.run.tags_codes
            if queue.ext is not None and self._queues.writes_ext:
                each = [codes] * len(log_offsets) if isinstance(codes, int) else codes
                codes = [_append_unit(queue.ext, code, note.timestamp, b"") for code in each]
            queue.write_many(note.queue_offset, log_offsets, note.sizes, codes)
            self._touch(queue)
        if self._with_index:
            self._hash_keys()
            hashes, keys_each = note.run.key_hashes(queue.hash_prefix)
            if len(hashes):
                places = log_offsets if keys_each == 1 else log_offsets.repeat(keys_each)
                self._hashed.append(IndexColumns(hashes, places, note.timestamp))

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
        if len(keys) < _MANY:
            # The absolute value, and 0 for the one number that has none (`java_numbers.index_hash`).
            hashes = [abs(number) & INT32_MAX for number in string_hashes(keys)]
            self._hashed.append(list(zip(hashes, offsets, times, strict=True)))
            return
        import numpy

        column = numpy.abs(hash_column(keys).astype(numpy.int64)) & INT32_MAX
        self._hashed.append(IndexColumns(column, numpy.array(offsets), numpy.array(times)))

    def _enter_keys(self) -> None:
        """Enter all keys. Raises OSError, with what is left still there."""
        self._hash_keys()
        if len(self._hashed) > 1:
            self._hashed = _joined(self._hashed)
        hashed = self._hashed
        while hashed:
            first = hashed[0]
            if isinstance(first, IndexColumns):
                done = self._index.put_columns(first)
                rest: list[IndexItem] | IndexColumns = first.behind(done)
                is_empty = done == len(first.hashes)
            else:
                rest = first[self._index.put_some(first) :]
                is_empty = not rest
            if is_empty:
                del hashed[0]
            else:
                hashed[0] = rest


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


def _end_of(note: Noted | NotedRun) -> int:
    last = _last_of(note)
    return last.log_offset + last.size


def _last_of(note: Noted | NotedRun) -> LastRecord:
    if isinstance(note, NotedRun):
        return LastRecord(int(note.log_offsets[-1]), int(note.sizes[-1]), note.timestamp)
    return LastRecord(note[2], note[3], note[5])
