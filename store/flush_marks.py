"""The flush marks of a store: after each flush of the log, how far it reached, for a recovery without anything newer.

A mark is written after the flush that makes it true, and is never flushed itself: it costs 8 µs. A killed process
leaves the newest one. A power cut leaves some earlier one or none, and each was true when it was written. It stays true
while the log is not cut in front of it, so a recovery that cuts the log first forgets the marks, durably. Another
program that cuts and rewrites the log does not know of them; then the bytes before the mark are others.

Java: (none)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketlet.common.crc import crc32
from rocketlet.store.disk import Disk, Entry, Region
from rocketlet.store.layout.file_names import FLUSHED, OWN
from rocketlet.store.layout.flush_mark_layout import FILE_SIZE, SIZE, FlushMark, encode, marks_in, place_of
from rocketlet.store.mapped_file_queue import MappedFileQueue

_log = logging.getLogger("rocketlet.store.flush_marks")

_TAIL = 4096  # bytes: the head of the last record is among them unless that is longer


class FlushMarks:
    """The writing of them, for one life of a store."""

    def __init__(self, disk: Disk, root: str, files: MappedFileQueue) -> None:
        self._disk = disk
        self._path = f"{root}/{FLUSHED}"
        self._files = files
        self._region: Region | None = None
        self._is_refused = False

    def note_of(self, end: int) -> Callable[[], None]:
        """A function that notes that the log is flushed up to there: to be called in a thread, right after the
        flush."""
        file = self._files.find(end - 1)
        if file is None:
            return lambda: None
        at, number = end - file.begin, file.begin // file.size
        size = min(at, _TAIL)
        tail = file.buffer[at - size : at]

        def note() -> None:
            content = bytes(tail)
            if content.count(0) < size:  # zeros would match a place where nothing was written
                self._write(place_of(number), encode(FlushMark(end, size, crc32(content))))

        return note

    def _write(self, place: int, data: bytes) -> None:
        if self._is_refused:
            return
        try:
            region = self._region = self._region or self._open()
            region.reserve(place, place + SIZE)
        except OSError as error:  # a full disk must not end a broker that can still serve reads
            self._is_refused = True
            _log.warning("%s: cannot note how far the log is flushed: %s", self._path, error.strerror)
            return
        region.buffer[place : place + SIZE] = data

    def _open(self) -> Region:
        folder, _, name = self._path.rpartition("/")
        if Entry(name, FILE_SIZE, is_directory=False) in self._disk.entries(folder):
            return self._disk.open(self._path)
        self._disk.remove(self._path)  # something else, or what a crash left of it
        return self._disk.create(self._path, FILE_SIZE)


def flushed_end(disk: Disk, root: str, files: MappedFileQueue) -> int:
    """Up to where this log is known to have been flushed; 0 where no mark fits it."""
    return max((mark.log_offset for mark in _marks(disk, root) if _fits(mark, files)), default=0)


def _marks(disk: Disk, root: str) -> list[FlushMark]:
    path = f"{root}/{FLUSHED}"
    try:
        data = disk.read_file(path, FILE_SIZE)
    except OSError as error:  # marks only help a recovery, so none of what may have this name ends a start
        _log.warning("%s: cannot read how far the log was flushed: %s", path, error.strerror)
        return []
    return list(marks_in(data or b""))


def _fits(mark: FlushMark, files: MappedFileQueue) -> bool:
    file = files.find(mark.log_offset - 1)
    if file is None:
        return False
    at = mark.log_offset - mark.tail_size - file.begin
    return at >= 0 and crc32(file.read_data(at, mark.tail_size)) == mark.tail_sum


def forget_flushed(disk: Disk, root: str, end: int) -> None:
    """Forget the marks, durably, if one lies behind the place where the log is now cut."""
    if any(mark.log_offset > end for mark in _marks(disk, root)):
        disk.remove(f"{root}/{FLUSHED}")
        disk.sync_directory(f"{root}/{OWN}")
