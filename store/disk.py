"""What the store needs of files and disks: the protocols against which it is written.

A `Region` is one file of fixed size, mapped whole and sparse. A `Disk` makes and finds regions and small files.
`real_disk.RealDisk` is the machine's, `memory_disk.MemoryDisk` the tests'.

Java: none
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Protocol

PAGE = mmap.PAGESIZE


class Region(Protocol):
    """One mapped file. All offsets are inside the file."""

    path: str
    size: int

    @property
    def buffer(self) -> memoryview:
        """The whole file, writable. It lives as long as any view of it is held."""

    def reserve(self, begin: int, end: int) -> None:
        """Make writing to [begin, end) safe. Raises OSError (ENOSPC where the disk is full), with nothing written."""

    def reserve_zeros(self, begin: int, end: int) -> None:
        """`reserve` what reads as zeros, in less time. REQUIRES that it does. Raises OSError."""

    def flush(self, *written: tuple[int, int]) -> None:
        """Wait until all that was written is on the disk. Raises OSError, after which no later success can be trusted.

        `written`: the range in which most of it was written, which makes the flush cheaper.
        """

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the file, waiting for the disk."""

    def read_now(self, at: int, size: int) -> bytes | None:
        """Bytes of the file, or None where the disk would have to be waited for."""

    def prefetch(self, begin: int, end: int) -> None:
        """Have the disk read [begin, end) while others work; `buffer` is read there soon. REQUIRES that it is no
        hole."""

    def next_data(self, at: int) -> tuple[int, int] | None:
        """[begin, end) of the next part at or after `at` that may hold something else than zeros; None if there is
        none. Reading holes would fill the page cache with zeros."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    size: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of the file system that holds a path: all, what an ordinary user may still use, and root's reserve."""

    total: int
    free: int
    reserved: int = 0

    @property
    def ratio(self) -> float:
        """Used part of what can be used, 0 to 1: the reserve is neither, as `df` and Java count."""
        usable = self.total - self.reserved
        return 1 - self.free / usable if usable else 0.0


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Directories are created with the first file in them."""

    inline: bool  # flushing takes no time, so it happens in place and not in a worker thread

    @property
    def sector(self) -> int:
        """Bytes that a power cut leaves written completely or not at all."""

    def entries(self, directory: str) -> list[Entry]:
        """What is in a directory, by name; nothing where there is none."""

    def exists(self, path: str) -> bool: ...

    def open(self, path: str) -> Region:
        """Map an existing file at the length it has."""

    def create(self, path: str, size: int) -> Region:
        """Make a file of this length, all hole, and map it. Raises FileExistsError."""

    def open_private(self, path: str, size: int) -> Region:
        """Map an existing file, or none, at this length; writes are seen here only, and are kept nowhere."""

    def extend(self, path: str, size: int) -> None:
        """Extend an existing file; the new part is a hole."""

    def read_file(self, path: str, most: int = -1) -> bytes | None:
        """A small file, or its first `most` bytes; None where there is none. Raises OSError, also where it is no file
        but something else of that name, which might never end."""

    def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file so that a crash leaves either the old or the new one, whole. Returns when it is
        durable."""

    def remove(self, path: str) -> None:
        """Delete a file; a missing one is no error."""

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory; one that is missing or not empty is left alone."""

    def rename(self, path: str, new_path: str) -> None: ...

    def sync_all(self, path: str) -> bool:
        """Make everything written below a locked directory durable at once, where the machine can; False where the
        outcome is unknown, and each file has to be flushed by itself. For very many files: flushing each costs 5 ms."""

    def sync_directory(self, path: str) -> None:
        """Make names made, renamed and deleted in a directory durable, its own name among them if it is new."""

    def modified(self, path: str) -> int:
        """Time of the file's last change, ms."""

    def usage(self, path: str) -> Usage:
        """Of the file system that holds a path, or its nearest parent that exists."""

    def memory(self) -> int:
        """Bytes of RAM that the page cache can grow into."""

    def lock(self, path: str) -> Lock:
        """Acquire the exclusive lock of a store. Raises StoreLocked."""
