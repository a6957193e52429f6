"""A log that follows another broker's: bytes in, whole records filed, and partial ones never visible to readers.

`append` takes bytes as they come, cut anywhere, and writes them where they belong. The log's own end (`log.end`, and
with it `appended`, flush, reads and checkpoint) is after the last *whole* record, so to everybody else a store that
follows looks like one that is written to. The incomplete part of a record stays after that end until the rest arrives;
`drop_rest` zeroes it, and so does the recovery of a restart.

While a replica is attached the store takes no messages of its own; `MessageStore.follow` makes it, `MessageStore.lead`
ends it.

Invariants: the bytes from the log's begin to `end` are the other log's, at the same offsets; a record is filed once it
is whole, in order; what is no record ends it (`NoRecord`) with nothing of it kept.

Java: store/DefaultMessageStore.java#appendToCommitLog, store/CommitLog.java#appendData
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable
from struct import Struct

from rocketlet.common.message_record import BLANK_SIZE, FIXED, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Buffer, Fault, outline
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.errors import DiskFull, StoreError
from rocketlet.store.layout.log_scan import chain
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.replay import Replay

_TWO = Struct(">ii")
_MANY = 24  # from so many records on they are filed together


class NoRecord(StoreError):
    """Bytes that cannot be a part of a log: sizes or marks are wrong. They were not kept."""


class Replica:
    """The writing end of a log that follows. `settle` files what was noted and moves the watermarks."""

    def __init__(
        self, log: CommitLog, replay: Replay, settle: Callable[[], None], has_room: Callable[[], bool]
    ) -> None:
        self._log = log
        self._replay = replay
        self._settle = settle
        self._has_room = has_room
        self._file: MappedFile | None = None
        self._ready = 0  # up to which place in that file may be written without asking for room
        self._unfiled: list[int] = []  # where in that file the whole records begin that are not filed yet
        self._least = log.end  # watermarks cannot go back, so an emptied log does not begin lower than it had been
        self.end = log.end
        """Where the next byte belongs; at or after the end of the last whole record."""
        self.whole_end = log.end
        """The end of the last whole record, filed or not, by sizes and magic numbers."""

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte yet, so that it may begin anywhere."""
        return not self._log.files.files and self.end == 0

    def begin_at(self, offset: int) -> None:
        """Have an empty log begin there. REQUIRES the begin of a file. Raises NoRecord where it had begun later."""
        assert self.is_empty
        assert offset % self._log.file_size == 0
        self._check_begin(offset)
        self._log.open_at(offset)
        self.end = self.whole_end = self._least = offset

    def _check_begin(self, offset: int) -> None:
        if offset < self._least:
            raise NoRecord(f"the log was to begin at {self._least} and now at {offset}; start this broker again")

    def clear(self) -> None:
        """Delete the files of a log that has no whole record, so that it may begin anywhere. REQUIRES that."""
        files = self._log.files
        while files.files:
            files.drop_last()
        self._log.open_at(0)
        self._go_on_at(0)

    @property
    def unfiled(self) -> int:
        """How many whole records wait for `file`."""
        return len(self._unfiled)

    def room_in_file(self) -> int:
        """How many bytes the file that `end` lies in still takes: nothing that is appended may cross its end."""
        return self._log.file_size - self.end % self._log.file_size

    def append(self, data: Buffer) -> None:
        """Write bytes at `end`, and file the records that they make whole. REQUIRES that they cross no file's end.

        Raises DiskFull, with nothing written or everything written and some records not filed yet, and NoRecord.
        """
        self.write(data)
        self.file()

    def write(self, data: Buffer) -> None:
        """`append`, with the records filed by the next `file`: many together cost a quarter."""
        if not self._has_room():
            self._settle()  # what a full disk kept from being filed
        if not self._has_room():
            raise DiskFull(f"{self._log.files.directory}: no space left on the disk; the master is not followed")
        if self.end < self._least:
            self._check_begin(self.end)
        size = len(data)
        assert size <= self.room_in_file()
        try:
            file = self._file_at(self.end)
            at = self.end - file.begin
            if at + size > self._ready:
                self._ready = file.make_room(at, at + size, zeros=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{error.filename}: no space left on the disk; the master is not followed") from error
            raise
        file.buffer[at : at + size] = data
        self.end += size
        places, end = chain(file.buffer, self.whole_end - file.begin, min(at + size, file.size - BLANK_SIZE))
        self._unfiled += places
        self.whole_end = file.begin + end
        if self.end == file.end:
            self.file()  # it looks at one file only

    def make_room_ahead(self) -> None:
        """Make room for the next turns. Call it while the leader does not wait for this replica."""
        if self._file is not None and self.end < self._file.end:
            self._ready = self._file.make_room_ahead(self.end - self._file.begin, self._ready)

    def file(self) -> None:
        """File the records that are whole. Raises DiskFull, NoRecord."""
        if self.end > self._log.end:
            assert self._file is not None
            self._file_records(self._file)

    def drop_rest(self) -> int:
        """Make zeros of what a cut left of a record; returns how many bytes that were."""
        log, size = self._log, self.end - self._log.end
        file = log.files.find(log.end) if size else None
        if file is not None:
            file.write(log.end - file.begin, bytes(size))
        self._go_on_at(log.end)
        return size

    def _go_on_at(self, end: int) -> None:
        self.end = self.whole_end = end
        self._file, self._ready, self._unfiled = None, 0, []

    def _file_at(self, offset: int) -> MappedFile:
        file = self._file
        if file is None or offset >= file.end:
            files = self._log.files
            # The first file's name must be durable at once, as in `CommitLog`.
            file = files.find(offset) or files.make(offset - offset % files.file_size, durably=not files.files)
            self._file, self._ready = file, 0
        return file

    def _file_records(self, file: MappedFile) -> None:
        """File what is whole between the log's end and `end`, both in this file."""
        log, base, buffer = self._log, file.begin, file.buffer
        at, end, size = log.end - base, self.end - base, file.size
        places, whole_end = self._unfiled, self.whole_end - base
        if len(places) >= _MANY and self._replay.note_many(buffer, places, whole_end, base):
            at = whole_end
        note = self._replay.note
        read = _TWO.unpack_from
        wrong = ""
        try:
            while end - at >= BLANK_SIZE:
                record_size, magic = read(buffer, at)
                if magic == MAGIC_BLANK and record_size == size - at:
                    if end < size:
                        break
                    at = size
                    break
                if (magic != MAGIC_V1 and magic != MAGIC_V2) or not FIXED <= record_size <= size - BLANK_SIZE - at:
                    wrong = f"size {record_size}, magic {magic & 0xFFFFFFFF:08x}"
                    break
                if record_size > end - at:
                    break
                record = outline(buffer, at, end, False, base + at)
                if isinstance(record, Fault):
                    wrong = record.value
                    break
                note(base + at, record)
                at += record_size
        finally:
            self._unfiled = places[bisect_left(places, at) :]
            self.whole_end = max(self.whole_end, base + at)
            log.open_at(base + at)
            self._settle()
        if wrong:
            self.drop_rest()
            raise NoRecord(f"what came for log offset {base + at} is no record ({wrong})")
