"""One queue of a topic: for each message, in order, where it is in the log.

An entry has 20 bytes (store/layout/consume_queue_entry.py); that of queue offset q is at byte 20 q. The files may begin
in the middle of the queue. A queue whose first entry ever is not at the beginning of a file gets pre-blank entries
before it, which hold nothing and are never handed out.

Two ends: `next_offset` is the offset of the next message, `end` is how far entries are written. They differ between
an append and its dispatch. `begin` is the first offset whose message is still in the log. An offset is given out only
when its entry has its place (`prepare`), so that a file that cannot be made refuses one message, and not what follows.

Invariants: `begin <= end <= next_offset`; entries are written in order and without gaps, by dispatch and recovery
only; their log offsets grow; what is after `end` reads as zeros.

Java: store/ConsumeQueue.java
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import topic_field
from rocketlet.store.disk import Disk
from rocketlet.store.layout.consume_queue_entry import ENTRY, ENTRY_SIZE, PRE_BLANK, entries_of, is_pre_blank
from rocketlet.store.layout.queue_ext_layout import is_address, to_offset
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.mapped_file_queue import MappedFileQueue
from rocketlet.store.watermark import Watermark

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyarrow import Table

    from rocketlet.store.consume_queue_ext import ConsumeQueueExt

_pack_entry = ENTRY.pack_into


class ConsumeQueue:
    """One queue. Offsets are queue offsets unless a name says otherwise."""

    __slots__ = (
        "_base", "_buffer", "_ready", "begin", "cuts", "delay_ms", "end", "ext", "files", "flushed", "hash_prefix",
        "is_dirty", "next_offset", "prepared", "queue_id", "topic", "topic_field", "watermark",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: str, topic: str, queue_id: int, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_field = topic_field(topic)
        self.hash_prefix = topic.encode() + b"#"
        self.delay_ms: int | None = None  # of a delay level's queue: its entries carry the time of delivery
        self.files = MappedFileQueue(disk, directory, file_size)
        self.ext: ConsumeQueueExt | None = None
        self.begin = 0
        self.end = 0
        self.next_offset = 0
        self.flushed = 0
        self.cuts = 0  # what a flush took up before one says nothing about the entries after it
        self.is_dirty = False
        self.prepared = 0  # entries before this offset have their place on the disk
        self.watermark: Watermark | None = None
        # The file being written, the byte of the queue where it begins, and up to which of its bytes entries
        # may be written without reserving room.
        self._buffer = memoryview(b"")
        self._base = 0
        self._ready = 0

    def prepare(self, count: int) -> None:
        """See that the next `count` entries can be written. Raises OSError."""
        at, size = self.next_offset * ENTRY_SIZE, self.files.file_size
        end = at + count * ENTRY_SIZE
        while at < end:
            file = self._file_for(at)
            position = at - file.begin
            ready = file.make_room(position, min(position + end - at, size)) // ENTRY_SIZE * ENTRY_SIZE
            at = file.begin + ready
            self.prepared = at // ENTRY_SIZE

    def write(self, offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """Write the entry of an offset. REQUIRES offset == end, or an empty queue. Raises OSError."""
        at = offset * ENTRY_SIZE - self._base
        if at >= self._ready:
            at = self._make_room(offset)
        _pack_entry(self._buffer, at, log_offset, size, tags_code)
        self.end = offset + 1

    def write_many(self, offset: int, entries: bytes) -> None:
        """Write the entries from an offset on, packed. Raises OSError, with `end` after those that were written."""
        while entries:
            at = offset * ENTRY_SIZE - self._base
            if at >= self._ready:
                at = self._make_room(offset)
            part = entries[: self._ready - at]
            self._buffer[at : at + len(part)] = part
            offset += len(part) // ENTRY_SIZE
            self.end = offset
            entries = entries[len(part) :]

    def _make_room(self, offset: int) -> int:
        assert offset == self.end or not self.files.files, f"{self!r}: {offset} would leave a gap"
        at = offset * ENTRY_SIZE
        file = self._file_for(at)
        position = at - file.begin
        if offset < self.prepared:
            ready = min(self.prepared * ENTRY_SIZE - file.begin, file.size)
        else:
            ready = file.make_room(position, position + ENTRY_SIZE)
        self._ready = ready // ENTRY_SIZE * ENTRY_SIZE
        self._buffer, self._base = file.buffer, file.begin
        return position

    def _file_for(self, at: int) -> MappedFile:
        """The file of a byte, which is made where it is not there yet. Raises OSError."""
        file = self.files.find(at)
        if file is None:
            is_first = not self.files.files
            file = self.files.make(at - at % self.files.file_size)
            if is_first:
                self._fill_before(file, at)
        return file

    def _fill_before(self, file: MappedFile, at: int) -> None:
        """Write pre-blank entries before the first entry ever."""
        count = (at - file.begin) // ENTRY_SIZE
        if count:
            file.write(0, PRE_BLANK * count)
        self.begin = self.end = self.flushed = at // ENTRY_SIZE

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of an offset below `end`; None where its file is gone."""
        file = self.files.find(offset * ENTRY_SIZE)
        if file is None or not 0 <= offset < self.end:
            return None
        values: tuple[int, int, int] = ENTRY.unpack_from(file.buffer, offset * ENTRY_SIZE - file.begin)
        return values

    def entries(self, offset: int, count: int) -> memoryview:
        """Bytes of up to `count` entries from an offset on, no farther than the end of their file; may be empty."""
        at = offset * ENTRY_SIZE
        position = at - self._base
        if 0 <= position < self._ready:  # the file being written, which nearly all pulls read
            return self._buffer[
                position : min(at + count * ENTRY_SIZE, self.end * ENTRY_SIZE) - self._base
            ].toreadonly()
        file = self.files.find(at)
        if file is None:
            return memoryview(b"")
        position = at - file.begin
        stop = min(position + count * ENTRY_SIZE, self.end * ENTRY_SIZE - file.begin, file.size)
        return file.buffer[position : max(stop, position)].toreadonly()

    def next_file_offset(self, offset: int) -> int:
        """The first offset of the file after the one that an offset lies in."""
        per_file = self.files.file_size // ENTRY_SIZE
        return offset + per_file - offset % per_file

    def log_end(self) -> int:
        """The log offset after the newest message of this queue; 0 where there is none."""
        last = self.entry(self.end - 1) if self.end > self.begin else None
        return 0 if last is None or is_pre_blank(last[0], last[1]) else last[0] + last[1]

    def correct_begin(self, log_begin: int, need: Callable[[int], None] | None = None) -> None:
        """Move `begin` to the first message that is still in the log, which now begins at `log_begin`."""
        low = max(self.begin, self.files.begin // ENTRY_SIZE)
        self.begin = min(self._first(low, lambda log_offset: log_offset >= log_begin, need), self.end)

    def _first(self, low: int, holds: Callable[[int], bool], need: Callable[[int], None] | None = None) -> int:
        """The first offset in [low, end) with `holds(its log offset)`, which must stay true once it is; else end."""
        high = self.end
        while low < high:
            middle = (low + high) // 2
            if need is not None:
                need(middle)
            entry = self.entry(middle)
            assert entry is not None
            if not is_pre_blank(entry[0], entry[1]) and holds(entry[0]):
                high = middle
            else:
                low = middle + 1
        return low

    def drop_before(self, log_begin: int, safe_end: int, need: Callable[[int], None] | None = None) -> int:
        """Delete files whose messages are all gone from the log; returns how many. `need`: see `search_time`.

        Only where the next file's first message lies before `safe_end`, so that no crash can take it: without any file
        the queue would begin again at 0, and consumers would skip its next messages.
        """
        dropped = 0
        while len(self.files.files) > 1:
            first = self.files.files[0]
            last = first.end // ENTRY_SIZE - 1
            if last + 1 >= self.end or self._log_offset(last + 1, need) >= safe_end:
                break
            if self._log_offset(last, need) >= log_begin:
                break
            self.files.drop_first()
            dropped += 1
        self.correct_begin(log_begin, need)
        return dropped

    def _log_offset(self, offset: int, need: Callable[[int], None] | None) -> int:
        if need is not None:
            need(offset)
        entry = self.entry(offset)
        assert entry is not None
        return entry[0]

    def drop_ext_before(self) -> None:
        """Delete extension files that no entry points to any more."""
        entry = self.entry(self.begin)
        if self.ext is not None and entry is not None and is_address(entry[2]):
            self.ext.drop_before(to_offset(entry[2]))

    def cut(self, end: int) -> None:
        """Remove entries from an offset on, leaving zeros. For recovery, and a slave whose master set a queue back."""
        while self.files.files and self.files.files[-1].begin >= end * ENTRY_SIZE:
            self.files.drop_last()
        last = self.files.last
        if last is not None:
            last.zero_from(max(end * ENTRY_SIZE - last.begin, 0))
        self.end = self.next_offset = end
        self.begin = min(self.begin, end)
        self.flushed = min(self.flushed, end)
        self.cuts += 1
        self._stop_writing()

    def pointing_into(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """(queue offset, log offset, size) of entries for that part of the log, looking at the files as they are."""
        result = []
        for file in self.files.files:
            entries = entries_of(file.buffer)
            offsets, sizes = entries["log_offset"], entries["size"]
            for index in ((offsets >= begin) & (offsets < end) & (sizes > 0)).nonzero()[0].tolist():
                if not is_pre_blank(int(offsets[index]), int(sizes[index])):
                    offset = file.begin // ENTRY_SIZE + index
                    result.append((offset, int(offsets[index]), int(sizes[index])))
        return result

    def open_at(self, begin: int, end: int) -> None:
        """Continue writing at an offset, in the files as they are; nothing of them is known to be on disk."""
        self.begin, self.end, self.next_offset = begin, end, end
        self.flushed = end
        self._stop_writing()

    def leave(self) -> Callable[[], None]:
        """The queue was dropped: make it empty for those who still hold it. Returns the deletion of its files, which
        may be called in a thread, and raises OSError. `forget` then frees the mapping."""
        files, ext = self.files, self.ext
        self.files, self.ext = files.without_files(), None
        self.begin = self.end

        def delete() -> None:
            files.drop_all()
            if ext is not None:
                ext.files.drop_all()

        return delete

    def forget(self) -> None:
        """Drop all mappings; they come back when they are needed."""
        self.files.forget()
        self._stop_writing()

    def _stop_writing(self) -> None:
        self._buffer = memoryview(b"")
        self._base = self._ready = self.prepared = 0

    def search_time(
        self, timestamp: int, store_time: Callable[[int], int], need: Callable[[int], None] | None = None
    ) -> int:
        """The first offset stored at or after a time, within begin to end. `store_time` answers for a log offset;
        `need` is told of each offset whose entry is looked at."""
        return self._first(self.begin, lambda log_offset: store_time(log_offset) >= timestamp, need)

    def watch(self) -> Watermark:
        """The end of this queue as a watermark."""
        if self.watermark is None:
            self.watermark = Watermark(self.end)
        return self.watermark

    def to_numpy(self) -> NDArray[Any]:
        """All entries from `begin` to `end` as a read-only array of log_offset, size, tags_code (big-endian).

        A view without copy if they are in one file, else a copy. It stays valid when files are deleted.
        """
        import numpy

        parts = []
        offset = self.begin
        while offset < self.end:
            piece = self.entries(offset, self.end - offset)
            parts.append(entries_of(piece))
            offset += len(piece) // ENTRY_SIZE
        array = parts[0] if len(parts) == 1 else numpy.concatenate(parts) if parts else entries_of(b"")
        array.flags.writeable = False
        return array

    def to_arrow(self) -> Table:
        """The same as a table of pyarrow's, with columns log_offset, size and tags_code. Needs pyarrow."""
        import pyarrow

        entries = self.to_numpy()
        native = {
            name: entries[name].astype(entries[name].dtype.newbyteorder("=")) for name in entries.dtype.names or ()
        }
        return pyarrow.table(native)

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}:{self.queue_id} {self.begin} to {self.end}, next {self.next_offset}>"
