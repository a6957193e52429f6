"""One small file that is replaced as a whole: a power cut leaves the old content or the new one, never a piece.

How: the new content goes to NAME.tmp and is synced, the old one to NAME.bak the same way (RocketMQ keeps that too, and
its tools know the name), then NAME.tmp is renamed over NAME and the folder is synced. NAME itself is there at every
moment. This is the name server's only door to files; `Files` is its seam.

Java: common/MixAll.java#string2File (which deletes NAME before it renames, and syncs nothing)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from rocketlet.common import platform_files


class Files(Protocol):
    """The calls that replacing a file takes. A test's forgets at a crash what was not synced."""

    # Whether calls wait for a device and must leave the event loop. In memory they must not: under a test's clock
    # time-outs fire while a worker thread works.
    blocking: bool

    def read(self, path: str) -> bytes | None:
        """None where there is no such file."""

    def write(self, path: str, data: bytes) -> None:
        """Make the file again, and sync its content, though not its name."""

    def rename(self, old: str, new: str) -> None:
        """Atomically, over what is there."""

    def sync_folder(self, path: str) -> None:
        """From here on the names in the folder survive a power cut."""


class RealFiles:
    blocking = True

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Not for others to read: what is kept may hold addresses and keys.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o640)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            platform_files.flush(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def sync_folder(self, path: str) -> None:
        platform_files.sync_folder(path)


class DurableFile:
    """Requires: one writer at a time, which its owner sees to."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._files = files or RealFiles()

    def __repr__(self) -> str:
        return f"<DurableFile {self.path}>"

    def read(self) -> bytes | None:
        return self._files.read(self.path)

    def read_backup(self) -> bytes | None:
        """What the file held before the last replacement."""
        return self._files.read(f"{self.path}.bak")

    async def replace(self, data: bytes) -> None:
        """Returns when the new content is safe. Raises OSError, and then the old one still stands.

        Is not cut short by cancellation: what has begun is finished.
        """
        if self._files.blocking:
            import trio  # here, so that what only reads a file does not pay for it

            await trio.to_thread.run_sync(self._replace, data)
        else:
            self._replace(data)

    def _replace(self, data: bytes) -> None:
        old = self._files.read(self.path)
        if old is not None:
            self._put(f"{self.path}.bak", old)
        self._put(self.path, data)
        self._files.sync_folder(os.path.dirname(self.path) or ".")

    def _put(self, path: str, data: bytes) -> None:
        self._files.write(f"{path}.tmp", data)
        self._files.rename(f"{path}.tmp", path)
