"""The log: every record of every topic, one after another, in the order in which they came.

It is the source of truth of a store: queues, index and checkpoint can be rebuilt from it. Only this module writes it.
`append` is a plain `def`, so it is the critical section, and it writes the record straight into the mapping.

Rule of a file's end (store.md 2.3): a record goes into a file only if 8 bytes stay free after it; otherwise those 8
bytes become a blank record that says how much room was left, and the record opens the next file.

Invariants: records lie without gaps from `begin` to `end`; what is after `end` reads as zeros (recovery sees to
that, and Java does not: see docs/decisions); `end` only grows.

Java: store/CommitLog.java
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rocketlet.common.message_record import BLANK_SIZE, Buffer, blank, pack_into
from rocketlet.store.disk import Disk
from rocketlet.store.errors import DiskFull, MessageIllegal, StoreError
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NOWHERE = 1 << 63  # greater than every offset


class CreateFileFailed(StoreError):
    """The next log file could not be made: CREATE_MAPPED_FILE_FAILED, answered as SYSTEM_ERROR (1)."""


class CommitLog:
    """The log over its files. Offsets are those of the log, which began at 0 with its first record."""

    __slots__ = ("_base", "_buffer", "_ready", "end", "files", "tail", "tail_begin")

    def __init__(self, disk: Disk, directory: str, file_size: int) -> None:
        self.files = MappedFileQueue(disk, directory, file_size)
        self.end = 0
        # The file that is being written: its buffer, the log offset of its byte 0, and up to which log offset a record
        # may end without reserving room first. No file is open for writing while _ready is 0.
        self._buffer = memoryview(b"")
        self._base = 0
        self._ready = 0
        # The same file for readers, whose records are all there from `tail_begin` on.
        self.tail = memoryview(b"")
        self.tail_begin = NOWHERE

    @property
    def begin(self) -> int:
        """The oldest offset still present."""
        return self.files.begin

    @property
    def file_size(self) -> int:
        return self.files.file_size

    def open_at(self, end: int) -> None:
        """Continue writing at an offset. REQUIRES zeros after it."""
        self.end = end
        self._ready = 0
        self.tail, self.tail_begin = memoryview(b""), NOWHERE

    def append(
        self,
        size: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        body: Buffer,
        topic: bytes,
        properties: bytes,
    ) -> int:
        """Write one record; returns its log offset. Raises DiskFull or MessageIllegal, with nothing written.

        REQUIRES: `size` is `record_size` of the parts, `topic` a `topic_field`.
        """
        at = self.end
        if at + size > self._ready:
            at = self.make_room(size)
        pack_into(
            self._buffer, at - self._base, size, queue_id, flag, queue_offset, at, sys_flag, born_timestamp, born_host,
            store_timestamp, store_host, reconsume_times, prepared_offset, body, topic, properties,
        )  # fmt: skip
        self.end = at + size
        return at

    def room_for(self, size: int) -> int:
        """`make_room`, for when it is not known that there is room."""
        return self.end if self.end + size <= self._ready else self.make_room(size)

    def fits_in_file(self, size: int) -> bool:
        """Whether the file that is being written takes so many bytes."""
        if self.end + size <= self._ready:
            return True
        file = self.files.find(self.end)
        return file is not None and self.end + size + BLANK_SIZE <= file.end

    def append_run(self, records: Buffer) -> None:
        """Write records that were encoded for this offset. REQUIRES `room_for` their size just before."""
        at = self.end - self._base
        self._buffer[at : at + len(records)] = records
        self.end += len(records)

    def make_room(self, size: int) -> int:
        """Make sure that `size` bytes can be written in one file; returns where. May close a file and open the next."""
        if size + BLANK_SIZE > self.file_size:
            raise MessageIllegal(
                f"a record of {size} bytes does not fit into a log file of {self.file_size}; send less, or set a larger"
                " mappedFileSizeCommitLog before the first start"
            )
        file = self.files.find(self.end)
        if file is None or self.end + size + BLANK_SIZE > file.end:
            file = self._next_file(file, size)
        at = self.end - file.begin
        try:
            ready = file.make_room(at, at + size + BLANK_SIZE, zeros=True)
        except OSError as error:
            raise _no_room(error, file.path) from error
        if file.begin != self.tail_begin:
            self.tail, self.tail_begin = file.buffer.toreadonly(), file.begin
        self._buffer, self._base = file.buffer, file.begin
        self._ready = file.begin + ready - BLANK_SIZE
        return self.end

    def make_room_ahead(self) -> None:
        """Make room for the next turns. Call it while nobody waits for an answer: page faults take 1 ms a MiB."""
        file = self.files.find(self.end) if self._ready else None
        if file is not None and file.begin == self._base:
            ready = self._ready + BLANK_SIZE - self._base
            self._ready = file.make_room_ahead(self.end - self._base, ready) + self._base - BLANK_SIZE

    def _next_file(self, last: MappedFile | None, size: int) -> MappedFile:
        """Make the next file, and only then close the last one: on a full disk nothing has changed."""
        begin = last.end if last is not None else self.end - self.end % self.file_size
        path = self.files.directory
        try:
            file = self.files.find(begin)
            if file is None:
                # The first file's name must be durable at once: if a crash lost it and kept a later one, the log would
                # seem to begin there. A later file that is lost leaves a gap, which recovery sees.
                file = self.files.make(begin, durably=last is None)
            file.make_room(0, size + BLANK_SIZE, zeros=True)
            if last is not None:
                at = self.end - last.begin
                last.write(at, blank(last.size - at))
        except OSError as error:
            raise _no_room(error, path) from error
        self.end = begin
        return file

    def read(self, offset: int, size: int) -> memoryview | None:
        """A read-only view of the log; None where that is not part of it. Views stay valid when files are deleted."""
        file = self.files.find(offset)
        if file is None or offset < 0 or size < 0:
            return None
        at = offset - file.begin
        if at + size > file.size or offset + size > self.end:
            return None
        return file.buffer[at : at + size].toreadonly()

    def flush_to(self, begin: int, end: int) -> Callable[[], None]:
        """A function that makes [begin, end) durable; it waits for the disk."""
        return self.files.flush_of(begin, end)

    def file_views(self) -> Iterator[tuple[int, memoryview]]:
        """(log offset of its first byte, read-only bytes) of each file, as far as it is written."""
        for file in list(self.files.files):
            size = min(self.end, file.end) - file.begin
            if size > 0:
                yield file.begin, file.buffer[:size].toreadonly()

    def to_numpy(self) -> list[NDArray[np.uint8]]:
        """The bytes of each file, as far as it is written: read-only views without copy, valid for as long as they are
        held.

        `store.view.heads_of` makes a table of them.
        """
        import numpy

        return [numpy.frombuffer(view, numpy.uint8) for _, view in self.file_views()]

    def __repr__(self) -> str:
        return f"<CommitLog {self.begin} to {self.end}, {len(self.files.files)} files>"


def _no_room(error: OSError, path: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path}: no space left on the disk; free some, or lower fileReservedTime. Reads continue")
    return CreateFileFailed(f"{path}: {error.strerror}")
