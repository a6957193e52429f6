"""The extension of a queue: for each message a unit with its tags code, its time and the bit map of SQL filters.

A queue entry then carries the unit's address in place of its tags code (store/layout/queue_ext_layout.py). Units are
written by dispatch right before the entry that points to them, so the ext files end where the last entry points;
whatever follows was never pointed to and is cut by recovery. A unit that cannot be written is no loss: the entry keeps
its plain tags code, and the filter has to read the message.

Java: store/ConsumeQueueExt.java
"""

from __future__ import annotations

from rocketlet.store.disk import Disk
from rocketlet.store.layout.queue_ext_layout import (
    END_MARK,
    HEAD_SIZE,
    ExtUnit,
    decode,
    encode,
    fits,
    to_address,
    to_offset,
)
from rocketlet.store.mapped_file_queue import MappedFileQueue


class ConsumeQueueExt:
    """The units of one queue. Positions are bytes from the beginning of the first file."""

    __slots__ = ("_ready", "end", "files", "flushed")

    def __init__(self, disk: Disk, directory: str, file_size: int) -> None:
        self.files = MappedFileQueue(disk, directory, file_size)
        self.end = 0
        self.flushed = 0
        self._ready = 0

    def open(self) -> None:
        """Find the end by walking the last loaded file; `cut` then moves it to where the queue points."""
        self.end = self.files.begin
        for file in self.files.files[-1:]:
            self.end = file.begin
            while (unit := decode(file.buffer, self.end - file.begin)) is not None:
                self.end += unit.size
        self.flushed = self.end

    def append(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Write a unit; returns its address. Raises OSError."""
        unit = encode(tags_code, store_timestamp, bit_map)
        size = self.files.file_size
        at = self.end % size
        file = self.files.find(self.end)
        if file is not None and not fits(at, len(unit), size):
            file.write(at, END_MARK)
            self.end, at, file = file.end, 0, None
        if file is None:
            file = self.files.find(self.end) or self.files.make(self.end - at)
        if self.end + len(unit) > self._ready:
            self._ready = file.begin + file.make_room(at, at + len(unit))
        file.buffer[at : at + len(unit)] = unit
        address = to_address(self.end)
        self.end += len(unit)
        return address

    def read(self, address: int) -> ExtUnit | None:
        """The unit that an entry points to; None where it is gone or was torn."""
        offset = to_offset(address)
        file = self.files.find(offset)
        if file is None or offset + HEAD_SIZE > self.end:
            return None
        return decode(file.buffer, offset - file.begin)

    def cut(self, end: int) -> None:
        """Forget units from a place on, leaving zeros. For recovery only."""
        while self.files.files and self.files.files[-1].begin >= end > self.files.begin:
            self.files.drop_last()
        last = self.files.last
        if last is not None:
            last.zero_from(max(end - last.begin, 0))
        self.end = self.flushed = max(end, self.files.begin)
        self._ready = 0

    def drop_before(self, offset: int) -> None:
        """Delete files that no entry points to any more, never the last."""
        while len(self.files.files) > 1 and self.files.files[0].end <= offset:
            self.files.drop_first()

    def __repr__(self) -> str:
        return f"<ConsumeQueueExt {self.files.directory} to {self.end}>"
