"""From the log to queues and index: what append already knows is filed once a turn, without reading the log again.

`put` only takes note. `settle`, once a turn, writes the queue entries, hashes the keys of all messages together (2.5 µs
a key one by one, 0.3 together), writes the index entries, and then moves the watermarks, so that whoever they wake
finds everything in place.

A full disk stops it where it stands: what could not be filed stays noted, the store takes no more messages, and the
next `settle` goes on from there. So dispatch is in order and without gaps in any case.

Invariant: `dispatched <= appended`; entries of one queue are written in the order of its offsets.

Java: store/DefaultMessageStore.java (ReputMessageService, CommitLogDispatcher…)
"""

from __future__ import annotations

from typing import NamedTuple

from common.java_hashes import string_hashes
from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.index_file import IndexItem
from store.message_index import MessageIndex
from store.watermark import Watermark

# queue, queue offset (-1: no entry), log offset, size, tags code, store timestamp, keys, filter bits
Noted = tuple[ConsumeQueue, int, int, int, int, int, "tuple[bytes, ...] | list[bytes]", bytes]


class LastRecord(NamedTuple):
    """Where the newest filed record is, and when it was stored."""

    log_offset: int
    size: int
    store_timestamp: int


class Dispatch:
    """What was appended and is not filed yet, and the filing."""

    def __init__(self, queues: ConsumeQueueTable, index: MessageIndex, *, with_index: bool) -> None:
        self._queues = queues
        self._index = index
        self._with_index = with_index
        self._keys: list[bytes] = []  # keys noted for the index, hashed together ...
        self._places: list[tuple[int, int]] = []  # ... and the log offset and store timestamp of their messages
        self._items: list[IndexItem] = []  # hashed, and not entered yet
        self._touched: list[ConsumeQueue] = []  # queues that somebody watches
        self.dispatched = Watermark()
        self.noted: list[Noted] = []
        self.last: LastRecord | None = None  # newest record whose queue entry is written

    def settle(self) -> None:
        """File all that was noted. Raises OSError where the disk has no room, and can be called again."""
        noted = self.noted
        if not noted and not self._items:
            return
        filed = 0
        try:
            for filed, note in enumerate(noted):  # noqa: B007 - after an error it says how far we came
                self._file(note)
            filed = len(noted)
        finally:
            self.noted = noted[filed:]
            if filed:
                _, _, offset, size, _, timestamp, _, _ = noted[filed - 1]
                self.last = LastRecord(offset, size, timestamp)
        self._enter_keys()
        touched, self._touched = self._touched, []
        for queue in touched:
            assert queue.watermark is not None
            queue.watermark.advance(queue.end)
        assert self.last is not None
        self.dispatched.advance(self.last.log_offset + self.last.size)

    def _file(self, note: Noted) -> None:
        queue, queue_offset, log_offset, size, tags_code, timestamp, keys, bits = note
        if queue_offset >= 0:
            if queue.ext is not None and self._queues.writes_ext:
                tags_code = queue.ext.append(tags_code, timestamp, bits)
            queue.write(queue_offset, log_offset, size, tags_code)
            if not queue.is_dirty:
                queue.is_dirty = True
                self._queues.dirty.append(queue)
            if queue.watermark is not None:
                self._touched.append(queue)
        if keys and self._with_index:
            prefix, place = queue.hash_prefix, (log_offset, timestamp)
            for key in keys:
                self._keys.append(prefix + key)
                self._places.append(place)

    def _enter_keys(self) -> None:
        if self._keys:
            hashes = string_hashes(self._keys)
            # The absolute value, and 0 for the one number that has none (`java_numbers.index_hash`).
            self._items += [
                (abs(h) & 0x7FFFFFFF, offset, time) for h, (offset, time) in zip(hashes, self._places, strict=True)
            ]
            self._keys, self._places = [], []
        while self._items:
            done = self._index.put_some(self._items)
            self._items = self._items[done:]
