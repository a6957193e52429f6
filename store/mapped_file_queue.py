"""Files of equal size, one after another, that make up one long sequence of bytes.

Each file is named after the offset of its first byte. The sequence need not begin at 0: old files are deleted. A name
that is no offset, a length that is not the configured one, a missing file in the middle: `load` reports them as
`Oddity`s and leaves the decision to its caller, who knows what a crash can have left.

Java: store/MappedFileQueue.java
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Protocol

from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import offset_name, parse_offset
from rocketlet.store.mapped_file import MappedFile


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in a directory of files that a sound store does not have."""

    path: str
    what: str  # "foreign", "length", "gap"
    size: int = 0
    begin: int = 0


class FilesFlush(Protocol):
    """See `MappedFileQueue.flush_of`. `is_durable`: the whole disk has just been flushed."""

    def __call__(self, *, is_durable: bool = False) -> None: ...


class MappedFileQueue:
    """The files of a directory in order.

    Invariant: `files` are adjacent: each begins where the one before ends.
    """

    __slots__ = ("_disk", "_names_changed", "directory", "file_size", "files")

    def __init__(self, disk: Disk, directory: str, file_size: int) -> None:
        self._disk = disk
        self._names_changed = False
        self.directory = directory
        self.file_size = file_size
        self.files: list[MappedFile] = []

    def load(self, first: int = 0) -> list[Oddity]:
        """Find the files, from the one that begins at `first`. What is odd is reported and left out, so that `files`
        are whole and adjacent from the first on: of files with gaps between them, all after the first gap are reported,
        and so are whole files after one of another length.
        """
        odd: list[Oddity] = []
        self.files = []
        for entry in self._disk.entries(self.directory):
            path = f"{self.directory}/{entry.name}"
            begin = parse_offset(entry.name)
            if entry.is_directory:
                continue
            if begin is None or begin % self.file_size:
                odd.append(Oddity(path, "foreign", entry.size))
            elif begin < first:
                continue
            elif entry.size != self.file_size:
                odd.append(Oddity(path, "length", entry.size, begin))
            elif self.files and begin != self.files[-1].end:
                odd.append(Oddity(path, "gap", entry.size, begin))
            else:
                self.files.append(MappedFile(self._disk, path, begin, self.file_size))
        # Who made them may have ended before their names were durable: there was nothing in them to flush.
        self._names_changed = bool(self.files)
        return odd

    @property
    def begin(self) -> int:
        return self.files[0].begin if self.files else 0

    @property
    def last(self) -> MappedFile | None:
        return self.files[-1] if self.files else None

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds an offset."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].begin) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def make(self, begin: int, *, durably: bool = False) -> MappedFile:
        """Make the file that begins there: the next one, or the first. Raises OSError.

        Its name becomes durable with the next flush, or with `durably` before this returns.
        """
        assert begin % self.file_size == 0
        assert not self.files or begin == self.files[-1].end
        path = f"{self.directory}/{offset_name(begin)}"
        region = self._disk.create(path, self.file_size)
        if durably:
            self._disk.sync_directory(self.directory)
        file = MappedFile(self._disk, path, begin, self.file_size, region)
        self.files.append(file)
        self._names_changed = True
        return file

    def drop_first(self) -> MappedFile:
        """Delete the oldest file. Readers keep its bytes until they drop them."""
        file = self.files.pop(0)
        self._disk.remove(file.path)
        file.forget()
        self._names_changed = True
        return file

    def release_first(self) -> str:
        """Remove the oldest file from the sequence; the caller deletes its path, where that may take time."""
        return self.files.pop(0).path

    def drop_last(self) -> MappedFile:
        file = self.files.pop()
        self._disk.remove(file.path)
        file.forget()
        self._names_changed = True
        return file

    def drop_all(self) -> None:
        """Delete every file and the directory."""
        while self.files:
            self.drop_last()
        self._disk.remove_directory(self.directory)

    def without_files(self) -> MappedFileQueue:
        """The same sequence without any file."""
        return MappedFileQueue(self._disk, self.directory, self.file_size)

    def flush_of(self, begin: int, end: int) -> FilesFlush:
        """A function that makes [begin, end) and the names of the files durable: to be called once, in a thread.

        It raises OSError also where somebody else has deleted a file: what is written to it is on no disk.
        """
        written = [
            (file, file.region, (max(begin - file.begin, 0), min(end - file.begin, file.size)))
            for file in self.files
            if file.begin < end and file.end > begin
        ]
        disk, directory = self._disk, self.directory

        def flush(*, is_durable: bool = False) -> None:
            for file, region, span in written:
                if not is_durable:
                    region.flush(span)
                if not disk.exists(file.path) and file in self.files:  # those that we delete leave the list first
                    raise FileNotFoundError(errno.ENOENT, "it was deleted while this process had it open", file.path)
            if self._names_changed and not is_durable:
                self._names_changed = False  # first, for the loop may make a file meanwhile
                disk.sync_directory(directory)

        return flush

    def forget(self) -> None:
        """Drop all mappings."""
        for file in self.files:
            file.forget()

    def __repr__(self) -> str:
        return f"<MappedFileQueue {self.directory}, {len(self.files)} files from {self.begin}>"
