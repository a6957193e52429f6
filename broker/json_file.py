"""The broker's tables on disk: one JSON file each, replaced atomically, with the previous content in a `.bak`.

A crash or a full disk leaves the old file or the new, never a part: `Disk.write_file` writes a temporary file, flushes,
renames, and flushes the directory. The file is plain JSON, which Java reads; Java's dialect (bare numeric keys,
trailing commas) is read. A corrupted file is logged, kept as `.broken`, and replaced by its `.bak`; if both are
corrupted the table is empty and an error is logged, but the broker starts.

Invariants: `saved()` returns only when all changes before the call are on disk; a `.bak` is never
overwritten by a file that could not be read.

Java: common/ConfigManager.java, common/MixAll.java (string2File)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import trio

from rocketlet.common import fastjson
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.in_turns import collect
from rocketlet.store.disk import Disk

log = logging.getLogger("rocketlet.broker.json_file")

BACKUP, BROKEN = ".bak", ".broken"
# After a failed write (disk full, say), until the next attempt.
RETRY_SECONDS = 5.0


class NotSaved(RocketletError):
    """A table could not be written; the change holds in memory until the broker stops. Make room and repeat it."""


class JsonFile:
    """One table's file. `body` returns the content at the moment of writing.

    A large table has `pieces` instead: its text in parts, between which other tasks run.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        body: Callable[[], Any] = dict,
        *,
        pieces: Callable[[], Iterator[bytes]] | None = None,
    ) -> None:
        self.path = path
        self._disk = disk
        self._body = body
        self._pieces = pieces
        self._lock = trio.Lock()
        self._changes = 0
        self._written = 0
        self._changed = trio.Event()
        self._readable = False  # whether what is on the disk now may become the backup
        self._is_there = False  # whether the file was read or written, and not deleted since

    def load(self) -> Any:
        """The content of the file, or of its backup; None if neither exists or both are corrupted."""
        for path in (self.path, self.path + BACKUP):
            data = self._disk.read_file(path)
            if not data or not data.strip(b" \t\r\n\0"):
                continue
            try:
                body = fastjson.loads(data)
                if not isinstance(body, dict):
                    raise fastjson.InvalidJson(f"{type(body).__name__} where an object should be")
            except fastjson.InvalidJson as error:
                log.error("%s: %s; it is kept as %s%s", path, error, path, BROKEN)
                self._disk.write_file(path + BROKEN, data)
                continue
            if path != self.path:
                log.warning("%s is missing, empty or broken: its backup %s is used", self.path, path)
            self._readable = self._is_there = path == self.path
            return body
        return None

    @property
    def dirty(self) -> bool:
        """Whether there are changes since the last write."""
        return self._written < self._changes

    def changed(self) -> None:
        """The table has changed."""
        self._changes += 1
        self._changed.set()

    def look(self) -> None:
        """Have the table written again if somebody has deleted its file, or its directory, meanwhile."""
        if self._is_there and not self._disk.exists(self.path):
            self._is_there = False
            self._report_deleted()
            self.changed()

    def _report_deleted(self) -> None:
        log.error("%s was deleted while the broker runs; it is written again", self.path)

    async def saved(self) -> None:
        """Wait until all changes so far are on disk. Callers that arrive during a write share the next one.

        Raises NotSaved.
        """
        change = self._changes
        async with self._lock:
            if self._written >= change:
                return
            upto = self._changes
            try:
                pieces = await self._text()
            except (TypeError, ValueError, RecursionError) as error:
                # Whatever the cause, the other tables and the broker continue.
                raise NotSaved(f"{self.path} could not be written: {error}") from error
            try:
                if self._disk.inline:
                    self._write(pieces)
                else:
                    await trio.to_thread.run_sync(self._write, pieces)
            except OSError as error:
                raise NotSaved(f"{self.path} could not be written: {error.strerror or error}; make room or check the "
                               "permissions of its directory") from error  # fmt: skip
            self._written = upto

    async def keep_saving(self) -> None:
        """Write soon after each change, for changes that nobody waits for."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                await self.saved()
            except NotSaved as error:
                log.error("%s; next try in %g s", error, RETRY_SECONDS)
                self._changed.set()
                await trio.sleep(RETRY_SECONDS)

    async def _text(self) -> list[bytes]:
        if self._pieces is None:
            return [msgspec.json.format(msgspec.json.encode(self._body()), indent=1)]
        return await collect(self._pieces())

    def _write(self, pieces: list[bytes]) -> None:
        if self._readable:
            old = self._disk.read_file(self.path)
            if old is not None:
                self._disk.write_file(self.path + BACKUP, old)
            elif self._is_there:
                self._report_deleted()
        self._disk.write_file(self.path, b"".join(pieces))
        self._readable = self._is_there = True

    def __repr__(self) -> str:
        return f"<JsonFile {self.path}: {self._changes - self._written} changes to write>"
