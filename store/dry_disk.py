"""A disk for dry runs: reads come from another disk, changes stay in memory.

The check of a store is its recovery on a dry disk, which shows what a repair would do.

Java: (none)
"""

from __future__ import annotations

import posixpath

from rocketlet.store.disk import Disk, Entry, Lock, Region, Usage

_NOWHERE = ".not-there"  # appended to a path: no file has that name


class DryDisk:
    """Disk over another one. `changes` are the paths that would have been changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes: dict[str, int] = {}  # length of files that differ from those on the other disk
        self._small: dict[str, bytes] = {}  # small files that were written whole
        self._removed: set[str] = set()
        self._regions: dict[str, Region] = {}
        self.changes: set[str] = set()
        self.inline = disk.inline
        self.sector = disk.sector

    def entries(self, directory: str) -> list[Entry]:
        entries_by_name = {
            entry.name: entry
            for entry in self._disk.entries(directory)
            if f"{directory}/{entry.name}" not in self._removed
        }
        for path, size in [*self._sizes.items(), *((path, len(data)) for path, data in self._small.items())]:
            if path.startswith(directory + "/"):
                name, _, below = path[len(directory) + 1 :].partition("/")
                if below:
                    entries_by_name.setdefault(name, Entry(name, 0, True))
                else:
                    entries_by_name[name] = Entry(name, size, False)
        return [entries_by_name[name] for name in sorted(entries_by_name)]

    def exists(self, path: str) -> bool:
        if path in self._sizes or path in self._small:
            return True
        if path in self._removed:
            return False
        return self._disk.exists(path) or bool(self.entries(path))

    def open(self, path: str) -> Region:
        if path not in self._regions:
            if not self.exists(path):
                raise FileNotFoundError(path)
            self._regions[path] = self.open_private(path, self._size(path))
        return self._regions[path]

    def open_private(self, path: str, size: int) -> Region:
        if path not in self._small:
            return self._disk.open_private(path if path not in self._removed else f"{path}{_NOWHERE}", size)
        data = self._small[path][:size]
        region = self._disk.open_private(f"{path}{_NOWHERE}", size)
        region.reserve(0, len(data))
        region.buffer[: len(data)] = data
        return region

    def create(self, path: str, size: int) -> Region:
        if self.exists(path):
            raise FileExistsError(path)
        self.changes.add(path)
        self._small.pop(path, None)
        self._regions[path] = self._disk.open_private(f"{path}{_NOWHERE}", size)
        self._sizes[path] = size
        return self._regions[path]

    def extend(self, path: str, size: int) -> None:
        if self._size(path) < size:
            self.changes.add(path)
            self._sizes[path] = size
            self._regions.pop(path, None)

    def read_file(self, path: str, most: int = -1) -> bytes | None:
        if path in self._small:
            return self._small[path][: most if most >= 0 else None]
        return None if path in self._removed else self._disk.read_file(path, most)

    def write_file(self, path: str, data: bytes) -> None:
        self.changes.add(path)
        self._small[path] = data
        self._removed.discard(path)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.changes.add(path)
        for table in (self._sizes, self._small, self._regions):
            table.pop(path, None)
        self._removed.add(path)

    def remove_directory(self, path: str) -> None:
        pass

    def rename(self, path: str, new_path: str) -> None:
        region = self._regions.get(path)
        if region is None:
            self.write_file(new_path, self.read_file(path) or b"")
        self.remove(path)
        if region is not None:  # mapped, as large files are
            self._regions[new_path], self._sizes[new_path] = region, region.size
            self.changes.add(new_path)

    def sync_all(self, path: str) -> bool:
        return False

    def sync_directory(self, path: str) -> None:
        pass

    def modified(self, path: str) -> int:
        return self._disk.modified(path)

    def usage(self, path: str) -> Usage:
        return self._disk.usage(path)

    def memory(self) -> int:
        return self._disk.memory()

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)

    def _size(self, path: str) -> int:
        if path in self._sizes:
            return self._sizes[path]
        if path in self._small:
            return len(self._small[path])
        directory, name = posixpath.split(path)
        return next(entry.size for entry in self._disk.entries(directory) if entry.name == name)
