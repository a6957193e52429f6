"""A small file that is replaced atomically: a power cut leaves the old content or the new, never a part.

How: the new content goes to NAME.tmp and is synced, the old one to NAME.bak in the same way (RocketMQ keeps that too,
and its tools know the name), then NAME.tmp is renamed over NAME and the folder is synced. NAME itself exists at every
moment. All of the name server's file access goes through here; `Files` is the seam for tests.

Java: common/MixAll.java#string2File (which deletes NAME before it renames, and syncs nothing)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from rocketlet.common import platform_files


class Files(Protocol):
    """The calls needed to replace a file. The one in tests forgets at a crash whatever was not synced."""

    # Whether calls wait for a device and must leave the event loop. In memory they must not: with a test's clock,
    # timeouts fire while a worker thread runs.
    blocking: bool

    def read(self, path: str) -> bytes | None:
        """None if there is no such file."""

    def write(self, path: str, data: bytes) -> None:
        """Create or truncate the file, write it, and sync its content, but not its name."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, over an existing file."""

    def sync_folder(self, path: str) -> None:
        """After this, the names in the folder survive a power cut."""


class RealFiles:
    blocking = True

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Not readable by others: the content may include addresses and keys.
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
    """Requires: one writer at a time, which the owner ensures."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._files = files or RealFiles()

    def __repr__(self) -> str:
        return f"<DurableFile {self.path}>"

    def read(self) -> bytes | None:
        return self._files.read(self.path)

    def read_backup(self) -> bytes | None:
        """The content before the last replacement."""
        return self._files.read(f"{self.path}.bak")

    async def replace(self, data: bytes) -> None:
        """Return once the new content is durable. If it raises OSError, the old content is intact.

        Not interrupted by cancellation: a replacement that has begun is finished.
        """
        if self._files.blocking:
            import trio  # imported here, so that reading a file does not pay for it

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
