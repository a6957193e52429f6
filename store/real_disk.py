"""The file system of this machine: the only module that finds, reads, renames and locks the store's files.

Java: store/MappedFileQueue.java, common/UtilAll.java (disk ratios)
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from typing import IO

from rocketlet.common import platform_files
from rocketlet.store.disk import Entry, Usage
from rocketlet.store.errors import StoreLocked
from rocketlet.store.real_region import PrivateRegion, RealRegion


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
                entries = [entry for item in items if (entry := _entry(item)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entries, key=lambda entry: entry.name)

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

    def read_file(self, path: str, most: int = -1) -> bytes | None:
        try:
            with open(path, "rb", opener=_open_plain) as file:
                return file.read(most)
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


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """None for a name behind which is nothing: of a file just deleted, or a link that leads nowhere."""
    try:
        is_directory = item.is_dir()
        return Entry(item.name, 0 if is_directory else item.stat().st_size, is_directory)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return None


def _open_plain(path: str, flags: int) -> int:
    """Open a plain file. Of what is none, a pipe would be waited for, and a device may have no end."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a plain file", path)


def _is_linux(major: int, minor: int) -> bool:
    if sys.platform != "linux":
        return False
    version = [int(part) for part in os.uname().release.split(".")[:2] if part.isdigit()]
    return version >= [major, minor]


_syncfs_tells = _is_linux(5, 8)
