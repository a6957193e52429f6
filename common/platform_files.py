"""What the operating systems have for files, and what each of them promises. All other modules ask here.

- `flush`. Linux: fdatasync, after which the data and what is needed to find it are on the disk. macOS: F_FULLFSYNC, the
  same; its fsync would leave the data in the cache of the drive. Windows: FlushFileBuffers, the same.
- `flush_mapping`. Linux: nothing, since fdatasync writes the dirty pages of mappings too. macOS: msync. Windows:
  FlushViewOfFile, without which FlushFileBuffers knows nothing of the mapping.
- `sync_folder`. Linux and macOS: names that were made, renamed and deleted are on the disk. Windows: nothing; a folder
  cannot be flushed, and NTFS keeps names by its journal, in order, though not at a given moment.
- `allocate`. Linux: posix_fallocate, so that later writes find their blocks. macOS: each page is written once with what
  it holds. Windows: nothing; a file has its blocks from the moment it gets its length.
- `next_data`. Linux and macOS know holes; on Windows everything counts as data.
- `lock_first_byte`: the lock that Java's FileChannel takes on the same system.
- `Deleted`. Linux and macOS delete a file at once, and readers keep its bytes. Windows refuses while a file is mapped;
  then it is tried again.

So on all of them the bytes of a flush that has returned survive a power cut. On Windows the name of a new file may not:
a power cut right after the first flush of a new log file can lose that file. Windows and macOS are for development.

A function that is missing (fdatasync on macOS, posix_fallocate there and on old systems, fcntl on Windows) is looked up
when it is called, so that tests can take it away.

Java: store/util/LibC.java, sun.nio.ch.FileDispatcherImpl
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from functools import cache
from typing import IO, Any

PAGE = 4096  # of `allocate`: what is written in one piece, and at least a sector of any disk
FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
READ_WRITE = os.O_RDWR | getattr(os, "O_BINARY", 0)  # Windows translates line ends without it
CREATE = READ_WRITE | os.O_CREAT | os.O_EXCL

_IS_WINDOWS = sys.platform == "win32"


def flush(descriptor: int) -> None:
    """Wait until what was written to a file is on the disk. Raises OSError."""
    fdatasync = getattr(os, "fdatasync", None)
    if fdatasync is not None:
        fdatasync(descriptor)
        return
    full_sync = _full_sync()
    if full_sync is not None:
        try:
            full_sync(descriptor)
            return
        except OSError as error:
            # Network file systems and some others do not have it; fsync is all that they promise.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
    os.fsync(descriptor)  # on Windows FlushFileBuffers


def _full_sync() -> Any:
    try:
        import fcntl
    except ImportError:
        return None
    command = getattr(fcntl, "F_FULLFSYNC", None)
    return None if command is None else lambda descriptor: fcntl.fcntl(descriptor, command)


def flush_mapping(mapping: Any) -> None:
    """Hand the dirty pages of a mapping to the file, where `flush` of the file does not. Raises OSError."""
    if not hasattr(os, "fdatasync"):
        mapping.flush()


def sync_folder(path: str) -> None:
    """Wait until the names in a folder are on the disk. A folder that is gone needs nothing. Raises OSError."""
    if _IS_WINDOWS:
        return
    try:
        descriptor = os.open(path or ".", FOLDER_FLAGS)
    except FileNotFoundError:
        return
    try:
        full_sync = _full_sync()
        if full_sync is None:
            os.fsync(descriptor)
        else:
            full_sync(descriptor)
    finally:
        os.close(descriptor)


def allocate(descriptor: int, begin: int, end: int) -> None:
    """Give a part of a file its blocks, without changing its content. Raises OSError (ENOSPC)."""
    posix_fallocate = getattr(os, "posix_fallocate", None)
    if posix_fallocate is not None:
        posix_fallocate(descriptor, begin, end - begin)
    elif hasattr(os, "pwrite"):
        for at in range(begin, end, PAGE):
            size = min(PAGE, end - at)
            os.pwrite(descriptor, os.pread(descriptor, size, at).ljust(size, b"\0"), at)


def next_data(descriptor: int, at: int, size: int) -> tuple[int, int] | None:
    """[begin, end) of the next part of a file of that size, at or after `at`, that may be no hole."""
    if not hasattr(os, "SEEK_DATA"):
        return (at, size) if at < size else None
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        return begin, min(os.lseek(descriptor, begin, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def lock_first_byte(file: IO[bytes]) -> None:
    """Take the exclusive lock of the first byte of a file, until it is closed. Raises OSError where it is taken."""
    try:
        import fcntl
    except ImportError:
        file.seek(0)
        _windows_lock()(file.fileno())
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def _windows_lock() -> Any:
    import msvcrt

    locking: Any = msvcrt.locking  # type: ignore[attr-defined, unused-ignore]
    mode: int = msvcrt.LK_NBLCK  # type: ignore[attr-defined, unused-ignore]
    return lambda descriptor: locking(descriptor, mode, 1)


def space(path: str) -> tuple[int, int, int]:
    """Bytes of an existing path's file system: all, those free for an ordinary user, and those free for root alone."""
    usage = shutil.disk_usage(path)
    return usage.total, usage.free, usage.total - usage.used - usage.free


@cache
def memory() -> int:
    """Bytes of RAM, or of that part of it which this process's control groups allow, its page cache among it."""
    if hasattr(os, "sysconf"):
        return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *group_limits("/")])
    import ctypes

    status = (ctypes.c_ulonglong * 8)()  # MEMORYSTATUSEX: its length and the load, then seven numbers of bytes
    ctypes.c_ulong.from_buffer(status).value = ctypes.sizeof(status)
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
    return int(status[1]) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else 4 << 30


def group_limits(root: str) -> list[int]:
    """The limits of memory of this process's control groups, from its own up to the outermost: of version 2 and of
    version 1, whose `no limit` is a very large number. A container sees its own group as the outermost. Linux."""
    limits = []
    for line in _lines(f"{root}proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            folder, name = (f"{root}sys/fs/cgroup", "memory.max")
            if controllers:
                folder, name = f"{folder}/memory", "memory.limit_in_bytes"
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                limit = _lines("/".join([folder, *parts[:depth], name]))
                limits += [int(text) for text in limit if text.isdecimal()]
    return limits


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard one, where there is such a limit."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # some sandboxes forbid it; then the soft limit applies, with an error of its own when it is reached


def most_open_files() -> int:
    """How many descriptors this process may have; -1 or a very large number where there is no such limit."""
    try:
        import resource
    except ImportError:
        return -1
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Deleted:
    """Deletes files. Windows refuses that while a reader still has a file mapped: then it is tried again later."""

    def __init__(self) -> None:
        self._undeleted: set[str] = set()

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error. Raises OSError."""
        for name in [*self._undeleted, path]:
            self._undeleted.discard(name)
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass
            except PermissionError:
                if not _IS_WINDOWS:
                    raise
                self._undeleted.add(name)
