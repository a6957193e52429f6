"""The name server's files in memory, for tests and for stacks that write nothing to disk.

Java: (none)
"""

from __future__ import annotations


class MemoryFiles:
    """`files` is what is on the disk; `fails` makes it full."""

    blocking = False

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}
        self.fails = False
        self.writes = 0

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def write(self, path: str, data: bytes) -> None:
        if self.fails:
            raise OSError(28, "No space left on device", path)
        self.writes += 1
        self.files[path] = data

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def sync_folder(self, path: str) -> None:
        pass
