"""Files of this machine as regions: the only module that maps, flushes and reads the store's large files.

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
- Who walks through a cold mapping waits at each fault, and pays for it: 10 GiB of log took 20 s of CPU. With what comes
  next asked for before (`prefetch`, MADV_WILLNEED) they took 12, and 8 out of the page cache.
- `mmap.close()` raises BufferError while a view of it lives, and a mapping must never be torn from under a reader. So
  nothing is ever closed explicitly: a region that is no longer needed is dropped, and the mapping goes with the last
  view of a reader, whether the file is deleted or not; likewise the descriptor, which a thread may be reading from. Nor
  is a mapped file ever shortened, which would make its tail a SIGBUS.
- Queue files may be many more than a process may have open, so a mapping holds no descriptor. Python's own does before
  3.13; there the file is mapped over an anonymous mapping of Python's by the system's own call (`_map_over`).
  Descriptors for reading are kept by the first _KEPT regions that need one; others open one each time, for 5 µs.
- A process at its limit of mappings (vm.max_map_count) cannot start a thread any more: the start succeeds, the thread
  ends at once, and whoever waits for it waits forever. So small files, those of queues, leave _SPARE_MAPPINGS for
  threads, memory and the log.

Java: store/MappedFile.java, store/util/LibC.java
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from rocketlet.common import platform_files
from rocketlet.store.disk import PAGE

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE; not named by Python's mmap module
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_SMALL_FILE = 16 << 20  # a file whose pages are asked for one by one, not a MiB at a time
_keeping = threading.RLock()  # a region may be freed, and counted, while this thread holds it
_zeros = memoryview(bytes(1 << 20))
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_IS_LINUX = sys.platform == "linux"
_KEPT = 256  # descriptors that regions keep open, in all
_SPARE_MAPPINGS = 4096  # a broker without queues has 400


class RealRegion:
    """A file of this machine."""

    __slots__ = ("_descriptor", "_map", "_view", "path", "size")

    kept_descriptors = 0  # descriptors that regions hold
    mapped = 0  # regions there are

    def __init__(self, path: str, size: int, descriptor: int) -> None:
        """Maps the file. The descriptor stays the caller's."""
        self.path = path
        self.size = size
        self._descriptor: int | None = None
        if size <= _SMALL_FILE and RealRegion.mapped >= _most_small_files():
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)
        try:
            if sys.version_info >= (3, 13) and sys.platform != "win32":
                self._map = mmap.mmap(descriptor, size, trackfd=False)
            else:
                self._map = _map_over(descriptor, size)
        except OSError as error:
            error.filename = path
            raise
        self._view = memoryview(self._map)
        with _keeping:
            RealRegion.mapped += 1

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

    def prefetch(self, begin: int, end: int) -> None:
        _prefetch(self._map, begin, end)

    def next_data(self, at: int) -> tuple[int, int] | None:
        with self._opened() as descriptor:
            return platform_files.next_data(descriptor, at, self.size)

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
        if hasattr(self, "_view"):  # it was mapped
            with _keeping:
                RealRegion.mapped -= 1
        if self._descriptor is not None:
            os.close(self._descriptor)
            with _keeping:
                RealRegion.kept_descriptors -= 1

    def __repr__(self) -> str:
        return f"<RealRegion {self.path} {self.size} bytes>"


def _prefetch(mapping: mmap.mmap, begin: int, end: int) -> None:
    begin -= begin % PAGE
    if begin < end and hasattr(mmap, "MADV_WILLNEED"):
        with suppress(OSError):  # a hint
            mapping.madvise(mmap.MADV_WILLNEED, begin, end - begin)


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
def _most_small_files() -> int:
    """How many regions there may be before no small file is mapped any more."""
    try:
        with open("/proc/sys/vm/max_map_count") as file:
            return max(int(file.read()) - _SPARE_MAPPINGS, _SPARE_MAPPINGS)
    except OSError:
        return sys.maxsize


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

    def prefetch(self, begin: int, end: int) -> None:
        _prefetch(self._map, begin, end)

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


_can_populate = sys.platform == "linux" and _populate_works()
