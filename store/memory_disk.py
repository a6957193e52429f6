"""A disk in memory that can lose power: for tests of everything that writes files.

Each file has two contents: what the process sees, and what is on the disk. A flush copies the first to the second;
`crash` returns a new disk as the machine would find it after a power cut: of every page that differs, a random one of
the two versions; of every name made, renamed or deleted since its directory was synced, either state; a file that was
never flushed may be empty. Real disks tear at sectors, so `page_size` may be small: the smaller, the more is tried.

Faults on request: `power_cut_in` (so many calls that change the disk go well, the next one raises `PowerCut`, in the
middle of whatever the store was doing; then call `crash`, or have `on_power_cut` do it, before anybody has heard of the
cut), `fail_next_flush` (the flush raises and, as on Linux, its
pages count as clean from then on, so that the next flush succeeds without having written them), `capacity` (a full
disk), `fail_next_rename`.

It also keeps the writers honest: a page written without having been reserved first would be SIGBUS on a full disk, and
is an AssertionError at the next flush here.

Java: (none; the Java store has no such seam)
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from rocketlet.store.disk import Entry, Usage
from rocketlet.store.errors import StoreLocked

_PLENTY = 1 << 50


class PowerCut(BaseException):
    """The power failed. No code of ours may catch it."""


class _File:
    """Contents of one file, seen and durable. `reserved` are the pages that have blocks."""

    def __init__(self, size: int, page_size: int, modified: int) -> None:
        self.content = bytearray(size)
        self.durable = bytearray(size)
        self.page_size = page_size
        self.modified = modified
        self.reserved: set[int] = set()
        self.cached: set[int] = set()  # pages in memory, where the disk is cold
        self.ever_flushed = False
        self._believed: bytearray | None = None  # what the kernel regards as written since a flush failed

    def dirty_pages(self, base: bytearray) -> list[slice]:
        if self.content == base:
            return []
        step = self.page_size
        pages = (slice(at, at + step) for at in range(0, len(self.content), step))
        return [page for page in pages if self.content[page] != base[page]]

    def flush(self, *, fail: bool) -> None:
        base = self.durable if self._believed is None else self._believed
        dirty = self.dirty_pages(base)
        for page in dirty:
            assert page.start // self.page_size in self.reserved, f"page at {page.start} written without reserve"
        if fail:
            self._believed = bytearray(self.content)
            return
        for page in dirty:
            self.durable[page] = self.content[page]
        if self._believed is not None:
            self._believed[:] = self.content
        self.ever_flushed = True

    def twin(self) -> _File:
        """The same file for a disk of its own."""
        twin = _File(len(self.content), self.page_size, self.modified)
        twin.content[:] = self.content
        twin.durable[:] = self.durable
        twin.reserved, twin.ever_flushed = set(self.reserved), self.ever_flushed
        twin._believed = None if self._believed is None else bytearray(self._believed)
        return twin

    def survivor(self, random: Random) -> _File:
        """What is left of the file after a power cut."""
        size = len(self.content)
        if not self.ever_flushed and random.random() < 0.25:
            size = random.choice((0, size))
        content = bytearray(self.durable)
        for page in self.dirty_pages(self.durable):
            if random.random() < 0.5:
                content[page] = self.content[page]
        remnant = _File(size, self.page_size, self.modified)
        remnant.content[:] = content[:size]
        remnant.durable[:] = content[:size]
        remnant.reserved = {
            at // self.page_size for at in range(0, size, self.page_size) if any(content[at : at + self.page_size])
        }
        remnant.ever_flushed = True
        return remnant


class MemoryRegion:
    """A file of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str, file: _File) -> None:
        self.path = path
        self.size = len(file.content)
        self._disk = disk
        self._file = file
        self._view = memoryview(file.content)

    @property
    def buffer(self) -> memoryview:
        return self._view

    def reserve(self, begin: int, end: int) -> None:
        self._disk.reserve(self._file, begin, min(end, self.size), self.path)

    def reserve_zeros(self, begin: int, end: int) -> None:
        assert not any(self._file.content[begin:end]), "these are no zeros"
        self.reserve(begin, end)

    def flush(self, *written: tuple[int, int]) -> None:
        self._disk.flush(self._file, self.path)

    def read(self, at: int, size: int) -> bytes:
        if self._disk.cold:
            self._file.cached.update(self._pages(at, size))
        return bytes(self._file.content[at : at + size])

    def read_now(self, at: int, size: int) -> bytes | None:
        if self._disk.cold and not self._file.cached.issuperset(self._pages(at, size)):
            return None
        return self.read(at, size)

    def _pages(self, at: int, size: int) -> range:
        return range(at // self._file.page_size, (at + size - 1) // self._file.page_size + 1)

    def prefetch(self, begin: int, end: int) -> None:
        pass

    def next_data(self, at: int) -> tuple[int, int] | None:
        step = self._file.page_size
        for page in range(at - at % step, self.size, step):
            if page // step in self._file.reserved:
                return max(page, at), min(page + step, self.size)
        return None


@dataclass(frozen=True, slots=True)
class DiskStatistics:
    files: int
    flushes: int
    reserved_bytes: int


@dataclass
class MemoryDisk:
    """Its methods are those of `store.disk.Disk`, except for what is said here."""

    page_size: int = 4096
    capacity: int | None = None
    ram: int = 1 << 30
    cold: bool = False  # no page is in the page cache before it was read: `read_now` answers None
    inline: bool = True
    now: int = 0  # stamped on files that are made
    fail_next_flush: bool = False
    fail_next_rename: bool = False
    power_cut_in: int | None = None
    on_power_cut: Callable[[], None] | None = None
    flushes: int = 0
    _names: dict[str, _File] = field(default_factory=dict)
    _durable_names: dict[str, _File] = field(default_factory=dict)
    _locked: set[str] = field(default_factory=set)

    @property
    def sector(self) -> int:
        return self.page_size

    def cool(self) -> None:
        """Nothing is in the page cache any more."""
        self.cold = True
        for file in self._names.values():
            file.cached.clear()

    def crash(self, random: Random) -> MemoryDisk:
        """The disk after a power cut; this one must not be used any more."""
        survivors: dict[int, _File] = {}
        disk = MemoryDisk(self.page_size, self.capacity, self.ram, self.cold, now=self.now)
        for path in sorted({*self._names, *self._durable_names}):
            visible, durable = self._names.get(path), self._durable_names.get(path)
            file = visible if visible is durable or random.random() < 0.5 else durable
            if file is not None:
                if id(file) not in survivors:
                    survivors[id(file)] = file.survivor(random)
                disk._names[path] = disk._durable_names[path] = survivors[id(file)]
        return disk

    def copy(self) -> MemoryDisk:
        """The disk after the process was killed but the machine was not: all that was written is visible, and no more
        of it durable than before."""
        disk = MemoryDisk(self.page_size, self.capacity, self.ram, self.cold, now=self.now)
        twins: dict[int, _File] = {}
        for names, copied_names in ((self._names, disk._names), (self._durable_names, disk._durable_names)):
            for path, file in names.items():
                copied_names[path] = twins.setdefault(id(file), file.twin())
        return disk

    def statistics(self) -> DiskStatistics:
        return DiskStatistics(len(self._names), self.flushes, self._used())

    def _change(self) -> None:
        """Called before every change of what a crash would leave."""
        if self.power_cut_in is not None:
            self.power_cut_in -= 1
            if self.power_cut_in < 0:
                callback, self.on_power_cut = self.on_power_cut, None
                if callback is not None:
                    callback()
                raise PowerCut

    def reserve(self, file: _File, begin: int, end: int, path: str) -> None:
        pages = set(range(begin // self.page_size, -(-end // self.page_size))) - file.reserved
        if self.capacity is not None and self._used() + len(pages) * self.page_size > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file.reserved |= pages

    def flush(self, file: _File, path: str) -> None:
        self._change()
        self.flushes += 1
        fail, self.fail_next_flush = self.fail_next_flush, False
        file.flush(fail=fail)
        if fail:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def entries(self, directory: str) -> list[Entry]:
        entries_by_name: dict[str, Entry] = {}
        for path, file in self._names.items():
            if path.startswith(directory + "/"):
                name, _, below = path[len(directory) + 1 :].partition("/")
                entries_by_name[name] = Entry(name, 0 if below else len(file.content), bool(below))
        return [entries_by_name[name] for name in sorted(entries_by_name)]

    def exists(self, path: str) -> bool:
        return path in self._names or bool(self.entries(path))

    def open(self, path: str) -> MemoryRegion:
        return MemoryRegion(self, path, self._file(path))

    def create(self, path: str, size: int) -> MemoryRegion:
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._change()
        self._names[path] = _File(size, self.page_size, self.now)
        return self.open(path)

    def open_private(self, path: str, size: int) -> MemoryRegion:
        scratch = MemoryDisk(self.page_size)
        scratch.put_file(path, (self.read_file(path) or b"").ljust(size, b"\0"))
        return scratch.open(path)

    def extend(self, path: str, size: int) -> None:
        old = self._file(path)
        self._change()
        if len(old.content) < size:
            file = _File(size, self.page_size, old.modified)
            file.content[: len(old.content)] = old.content
            file.durable[: len(old.durable)] = old.durable
            file.reserved, file.ever_flushed = set(old.reserved), old.ever_flushed
            self._replace(old, file)

    def read_file(self, path: str, most: int = -1) -> bytes | None:
        content = bytes(self._names[path].content) if path in self._names else None
        return content if content is None or most < 0 else content[:most]

    def write_file(self, path: str, data: bytes) -> None:
        scratch = _File(len(data), self.page_size, self.now)
        self._names[path + ".tmp"] = scratch
        self.reserve(scratch, 0, len(data), path)
        scratch.content[:] = data
        self.flush(scratch, path)
        self.rename(path + ".tmp", path)
        self.sync_directory(posixpath.dirname(path))

    def put_file(self, path: str, data: bytes) -> None:
        """Place a durable file, as a test's starting point."""
        file = _File(len(data), self.page_size, self.now)
        file.content[:] = data
        file.durable[:] = data
        file.ever_flushed = True
        file.reserved = {
            at // self.page_size for at in range(0, len(data), self.page_size) if any(data[at : at + self.page_size])
        }
        self._names[path] = self._durable_names[path] = file

    def files(self) -> dict[str, bytes]:
        """All contents as the process sees them, by path."""
        return {path: bytes(file.content) for path, file in sorted(self._names.items())}

    def remove(self, path: str) -> None:
        self._change()
        self._names.pop(path, None)

    def remove_directory(self, path: str) -> None:
        pass  # directories are only parts of names here

    def rename(self, path: str, new_path: str) -> None:
        if self.fail_next_rename:
            self.fail_next_rename = False
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._change()
        self._names[new_path] = self._file(path)
        del self._names[path]

    def sync_all(self, path: str) -> bool:
        return False

    def sync_directory(self, path: str) -> None:
        self._change()
        for name in {*self._names, *self._durable_names}:
            if posixpath.dirname(name) == path:
                if name in self._names:
                    self._durable_names[name] = self._names[name]
                else:
                    del self._durable_names[name]

    def modified(self, path: str) -> int:
        return self._file(path).modified

    def usage(self, path: str) -> Usage:
        total = _PLENTY if self.capacity is None else self.capacity
        return Usage(total, max(total - self._used(), 0))

    def memory(self) -> int:
        return self.ram

    def lock(self, path: str) -> MemoryLock:
        if path in self._locked:
            raise StoreLocked(f"{path}: another store has it open")
        if path not in self._names:
            self.put_file(path, b"lock")
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def _used(self) -> int:
        return sum(len(file.reserved) for file in self._names.values()) * self.page_size

    def _file(self, path: str) -> _File:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]

    def _replace(self, old: _File, new: _File) -> None:
        for names in (self._names, self._durable_names):
            for path, file in names.items():
                if file is old:
                    names[path] = new


class MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
