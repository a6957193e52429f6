"""The files of the store: the only module that maps, flushes, reads, renames or locks them.

A `Region` is one file of fixed size, mapped whole and sparse. A `Disk` makes and finds regions and small files. The
store is written against these two protocols; `RealDisk` is the machine's, `memory_disk.MemoryDisk` the tests'.

Facts behind the design (Linux, ext4, CPython 3.11):

- `mmap.flush()` holds the GIL for the whole flush: 414 ms of flush stalled every task of the process for 415 ms.
  `os.fdatasync(fd)` writes the same dirty pages of a shared mapping, releases the GIL, and stalls the loop 7 ms. So
  `Region.flush` is fdatasync, and is called in a worker thread wherever `Disk.inline` is false.
- Before a dirty page is written out, the kernel takes the right to write to it from every mapping, page by page, and
  interrupts the other processors for each: 7 µs a page here, half of what a batch of small messages cost. So `flush`
  first takes the pages that were written out of the mapping, all with one such interrupt (MADV_DONTNEED, which of a
  shared mapping drops the entries in the page table; the bytes stay in the page cache). What is read again is mapped
  again, 16 pages a fault. It also keeps the log out of the process's resident memory.
- Writing through a mapping into a hole of a full disk is no error but SIGBUS, the end of the process. So whoever
  writes calls `Region.reserve` first: MADV_POPULATE_WRITE (Linux 5.14) makes the kernel find the blocks, and answers
  EFAULT where a write would have been a SIGBUS. It also takes the page faults together, 1 ms a MiB, where they cost
  twice as much one by one. Elsewhere posix_fallocate serves.
- A fault in a hole is a read first, and the kernel reads ahead: with 8 MiB of read-ahead (a usual disk of a cloud) the
  first page of a queue file filled the memory with all 6 MB of its zeros, in 1.4 ms. `MADV_RANDOM` around it: 20 µs.
  Where much is reserved that reads as zeros (the log ahead of its writer), `reserve_zeros` writes these zeros: pages of
  a `write` are not read, so it takes 0.2 ms a MiB where populating the hole takes 0.3 to 1.2.
- On tmpfs even reading a hole through a mapping takes a page, and on a full one is SIGBUS. So holes are not read: where
  there may be some, `next_data` says what is none (`MappedFile.read_data`).
- Reading cold pages through the mapping stalls the loop up to 15 ms. `read_now` asks the page cache and returns None
  when the disk would have to be waited for (RWF_NOWAIT); `read` waits, and belongs in a worker thread.
- `mmap.close()` raises BufferError while a view of it lives, and a mapping must never be torn from under a reader. So
  nothing is ever closed explicitly: a region that is no longer needed is dropped, and the mapping goes with the last
  view of a reader, whether the file is deleted or not; likewise the descriptor, which a thread may be reading from. Nor
  is a mapped file ever shortened, which would make its tail a SIGBUS.
- Queue files may be many more than a process may have open, so a mapping holds no descriptor. Python's own does before
  3.13; there the file is mapped over an anonymous mapping of Python's by the system's own call (`_map_over`).
  Descriptors for reading are kept by the first _KEPT regions that need one; others open one each time, for 5 µs.

Java: store/MappedFile.java, store/util/LibC.java, common/UtilAll.java (disk ratios)
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, Protocol

from rocketlet.common import platform_files
from rocketlet.store.errors import StoreLocked

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE; not named by Python's mmap module
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_SMALL_FILE = 16 << 20  # a file whose pages are asked for one by one, not a MiB at a time
_keeping = threading.Lock()
_zeros = memoryview(bytes(1 << 20))
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_IS_LINUX = sys.platform == "linux"
PAGE = mmap.PAGESIZE
_KEPT = 256  # descriptors that regions keep open, in all


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

    def descriptor(self) -> int | None:
        """Of the file, for as long as this region is held; None where there is none to be had."""

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
    """Bytes of the file system that holds a path; `free` is what an ordinary user may still use."""

    total: int
    free: int

    @property
    def ratio(self) -> float:
        """Used part of what can be used, 0 to 1."""
        return 1 - self.free / self.total if self.total else 0.0


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

    def read_file(self, path: str) -> bytes | None:
        """A small file, or None where there is none."""

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


class RealRegion:
    """A file of this machine."""

    __slots__ = ("_descriptor", "_map", "_view", "path", "size")

    kept_descriptors = 0  # descriptors that regions hold

    def __init__(self, path: str, size: int, descriptor: int) -> None:
        """Maps the file. The descriptor stays the caller's."""
        self.path = path
        self.size = size
        self._descriptor: int | None = None
        try:
            if sys.version_info >= (3, 13) and sys.platform != "win32":
                self._map = mmap.mmap(descriptor, size, trackfd=False)
            else:
                self._map = _map_over(descriptor, size)
        except OSError as error:
            error.filename = path
            raise
        self._view = memoryview(self._map)

    @property
    def buffer(self) -> memoryview:
        return self._view

    def reserve(self, begin: int, end: int) -> None:
        begin -= begin % PAGE
        end = min(-(-end // PAGE) * PAGE, self.size)
        if end <= begin:
            return
        if _can_populate:
            try:
                if self.size > _SMALL_FILE:
                    self._map.madvise(_POPULATE_WRITE, begin, end - begin)
                    return
                self._map.madvise(mmap.MADV_RANDOM)
                try:
                    self._map.madvise(_POPULATE_WRITE, begin, end - begin)
                    return
                finally:
                    self._map.madvise(mmap.MADV_NORMAL)
            except OSError as error:
                if error.errno == errno.EFAULT:  # the kernel found no block: a write would get SIGBUS
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path) from error
                if error.errno != errno.EINVAL:
                    raise
        with self._opened() as descriptor:
            platform_files.allocate(descriptor, begin, end)

    def reserve_zeros(self, begin: int, end: int) -> None:
        end = min(-(-end // PAGE) * PAGE, self.size)
        at = -(-begin // PAGE) * PAGE if hasattr(os, "pwrite") else end
        try:
            with self._opened() as descriptor:
                while at < end:
                    at += os.pwrite(descriptor, _zeros[: end - at], at)
        except FileNotFoundError:
            pass  # deleted meanwhile; the mapping still has it
        except OSError as error:
            error.filename = self.path
            raise
        self.reserve(begin, end)

    def flush(self, *written: tuple[int, int]) -> None:
        for begin, end in written:
            begin, end = -(-begin // PAGE) * PAGE, end // PAGE * PAGE
            if end - begin > PAGE and _IS_LINUX:
                with suppress(OSError):  # of a process that has locked its memory: a hint refused is no failed flush
                    self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)
        platform_files.flush_mapping(self._map)
        try:
            with self._opened() as descriptor:
                platform_files.flush(descriptor)
        except FileNotFoundError:
            pass  # deleted meanwhile: there is nothing to keep

    def read(self, at: int, size: int) -> bytes:
        size = min(size, self.size - at)
        if not hasattr(os, "pread"):
            return bytes(self._view[at : at + size])
        parts = []
        try:
            with self._opened() as descriptor:
                while size > 0:
                    part = os.pread(descriptor, size, at)
                    if not part:
                        raise OSError(errno.EIO, "the file is shorter than it was", self.path)
                    parts.append(part)
                    at += len(part)
                    size -= len(part)
        except FileNotFoundError:  # deleted before anybody read it; the mapping still has it
            return bytes(self._view[at : at + size])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_now(self, at: int, size: int) -> bytes | None:
        if not _NOWAIT:
            return bytes(self._view[at : at + size])
        size = min(size, self.size - at)
        data = bytearray(size)
        try:
            with self._opened() as descriptor:
                size_read = os.preadv(descriptor, [data], at, _NOWAIT)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno == errno.EOPNOTSUPP:  # a file system in memory, of an older kernel
                return bytes(self._view[at : at + size])
            raise
        return bytes(data) if size_read == size else None

    def next_data(self, at: int) -> tuple[int, int] | None:
        with self._opened() as descriptor:
            return platform_files.next_data(descriptor, at, self.size)

    def descriptor(self) -> int | None:
        with suppress(OSError), self._opened():  # deleted, or too many are open
            return self._descriptor
        return None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the file. Raises FileNotFoundError where it was deleted before anybody asked for one."""
        if self._descriptor is not None:
            yield self._descriptor
            return
        descriptor = os.open(self.path, platform_files.READ_WRITE)
        with _keeping:  # several threads may read a file
            is_kept = RealRegion.kept_descriptors < _KEPT and self._descriptor is None
            if is_kept:
                RealRegion.kept_descriptors += 1
                self._descriptor = descriptor
        try:
            yield descriptor
        finally:
            if not is_kept:
                os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            with _keeping:
                RealRegion.kept_descriptors -= 1

    def __repr__(self) -> str:
        return f"<RealRegion {self.path} {self.size} bytes>"


def _map_over(descriptor: int, size: int) -> mmap.mmap:
    """A mapping that holds no descriptor: an anonymous one, and the file in its place. Raises OSError."""
    if not _IS_LINUX:
        return mmap.mmap(descriptor, size)
    import ctypes

    place = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    buffer = ctypes.c_char.from_buffer(place)
    address = ctypes.addressof(buffer)
    del buffer  # which would keep the mapping from being freed
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
    if _system_mmap()(address, size, protection, flags, descriptor, 0) != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return place


@cache
def _system_mmap() -> Any:
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    return function


class PrivateRegion:
    """A file that can be written to without changing it, or no file at all: for trying out a repair."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self._written: set[int] = set()  # pages that may differ from the file's
        present = os.path.getsize(path) if os.path.exists(path) else 0
        if present == size and size:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        else:
            self._map = mmap.mmap(-1, max(size, 1))
            if present:
                with open(path, "rb") as file:
                    data = file.read(size)
                self._map[: len(data)] = data
                self.reserve(0, len(data))
        self._descriptor = os.open(path, os.O_RDONLY) if present == size and size else None
        self._view = memoryview(self._map)[:size]

    @property
    def buffer(self) -> memoryview:
        return self._view

    def reserve(self, begin: int, end: int) -> None:
        self._written.update(range(begin // PAGE, -(-min(end, self.size) // PAGE)))

    def reserve_zeros(self, begin: int, end: int) -> None:
        self.reserve(begin, end)

    def flush(self, *written: tuple[int, int]) -> None:
        pass

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._view[at : at + size])

    def read_now(self, at: int, size: int) -> bytes | None:
        return self.read(at, size)

    def descriptor(self) -> int | None:
        return None  # the file does not have what is written here

    def next_data(self, at: int) -> tuple[int, int] | None:
        below = platform_files.next_data(self._descriptor, at, self.size) if self._descriptor is not None else None
        page = min((page for page in self._written if (page + 1) * PAGE > at), default=None)
        if page is None or (below is not None and below[0] <= page * PAGE):
            return below
        return max(page * PAGE, at), min((page + 1) * PAGE, self.size)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _populate_works() -> bool:
    with mmap.mmap(-1, PAGE) as probe:
        try:
            probe.madvise(_POPULATE_WRITE, 0, PAGE)
        except (OSError, ValueError):
            return False
    return True


def _is_linux(major: int, minor: int) -> bool:
    if sys.platform != "linux":
        return False
    version = [int(part) for part in os.uname().release.split(".")[:2] if part.isdigit()]
    return version >= [major, minor]


_syncfs_tells = _is_linux(5, 8)
_can_populate = sys.platform == "linux" and _populate_works()


class RealDisk:
    """The machine's file system."""

    inline = False
    sector = 512

    def __init__(self) -> None:
        platform_files.raise_open_files()
        self._deleted = platform_files.Deleted()
        self._changed: set[str] = set()  # directories that got a directory since they were synced
        self._locked: dict[str, int] = {}  # locked directories, and a descriptor that knows of failed writes since

    def entries(self, directory: str) -> list[Entry]:
        try:
            with os.scandir(directory) as items:
                return sorted((_entry(item) for item in items), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def open(self, path: str) -> RealRegion:
        descriptor = os.open(path, platform_files.READ_WRITE)
        try:
            return RealRegion(path, os.fstat(descriptor).st_size, descriptor)
        finally:
            os.close(descriptor)

    def create(self, path: str, size: int) -> RealRegion:
        self._make_directory(os.path.dirname(path))
        descriptor = os.open(path, platform_files.CREATE, 0o644)
        try:
            os.ftruncate(descriptor, size)
            return RealRegion(path, size, descriptor)
        except OSError:
            os.unlink(path)  # left behind, it would keep the next try from making it
            raise
        finally:
            os.close(descriptor)

    def open_private(self, path: str, size: int) -> PrivateRegion:
        return PrivateRegion(path, size)

    def extend(self, path: str, size: int) -> None:
        if os.path.getsize(path) < size:
            os.truncate(path, size)

    def read_file(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write_file(self, path: str, data: bytes) -> None:
        directory = os.path.dirname(path)
        self._make_directory(directory)
        scratch = path + ".tmp"
        with open(scratch, "wb") as file:
            file.write(data)
            file.flush()
            platform_files.flush(file.fileno())
        os.replace(scratch, path)
        self.sync_directory(directory)

    def remove(self, path: str) -> None:
        self._deleted.delete(path)

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def rename(self, path: str, new_path: str) -> None:
        self._make_directory(os.path.dirname(new_path))
        os.replace(path, new_path)

    def sync_all(self, path: str) -> bool:
        # From Linux 5.8 on, syncfs reports failed writes since its descriptor was opened. They may be another
        # program's: then each of our files is checked.
        descriptor = self._locked.get(os.path.realpath(path))
        if descriptor is None or not _syncfs_tells:
            return False
        import ctypes  # 10 ms, and only a store with many queues needs it

        return bool(ctypes.CDLL(None).syncfs(descriptor) == 0)

    def sync_directory(self, path: str) -> None:
        platform_files.sync_folder(path)
        while (path := os.path.dirname(path)) in self._changed:
            self._changed.discard(path)
            platform_files.sync_folder(path)

    def modified(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: str) -> Usage:
        while not os.path.exists(path) and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        return Usage(*platform_files.space(path or "."))

    def memory(self) -> int:
        return platform_files.memory()

    def lock(self, path: str) -> RealLock:
        directory = os.path.realpath(os.path.dirname(path))
        lock = RealLock(path, lambda: self._unlocked(directory))
        if _syncfs_tells:
            self._locked[directory] = os.open(directory, platform_files.FOLDER_FLAGS)
        return lock

    def _unlocked(self, directory: str) -> None:
        descriptor = self._locked.pop(directory, None)
        if descriptor is not None:
            os.close(descriptor)

    def _make_directory(self, path: str) -> None:
        if path and not os.path.isdir(path):
            parent = os.path.dirname(path)
            self._make_directory(parent)
            os.makedirs(path, exist_ok=True)
            self._changed.add(parent)


class RealLock:
    """Java's own lock: an exclusive POSIX lock on byte 0 of the file, whose content is the word lock.

    POSIX locks do not hold between two stores of one process, and closing any descriptor of the file gives the lock up;
    so the paths that this process holds are remembered.
    """

    _held: set[str] = set()  # noqa: RUF012 - one for the process is the point

    def __init__(self, path: str, on_release: Callable[[], None]) -> None:
        self._on_release = on_release
        self._path = os.path.realpath(path)
        if self._path in self._held:
            raise StoreLocked(f"{path}: this process has the store open already")
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file: IO[bytes] = open(self._path, "a+b")  # noqa: SIM115 - held until release
        try:
            platform_files.lock_first_byte(self._file)
        except OSError as error:
            self._file.close()
            raise StoreLocked(
                f"{path}: another process has this store open; stop it, or set another storePathRootDir for this broker"
            ) from error
        if self._file.seek(0, os.SEEK_END) == 0:
            self._file.write(b"lock")
            self._file.flush()
        self._held.add(self._path)

    def release(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._held.discard(self._path)
            self._on_release()


def _entry(item: os.DirEntry[str]) -> Entry:
    is_directory = item.is_dir()
    return Entry(item.name, 0 if is_directory else item.stat().st_size, is_directory)
