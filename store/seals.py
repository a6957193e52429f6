"""Sealing full log files, in the background: a checksum of every block, for checks years later.

Only files known to be good are sealed. Those that this process wrote and flushed are; in older files without a seal
each record is checked first, and a damaged one stays unsealed and is reported in the log: a seal would make it look
right.

Java: (none)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.file_names import SEALS, parse_offset
from rocketlet.store.layout.log_scan import read_through
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.offload import offload
from rocketlet.store.seal_files import seal_path
from rocketlet.store.watermark import Watermark

_log = logging.getLogger("rocketlet.store.seals")


class Seals:
    """The sealing of one store's log. `trusted_from` is where what this process wrote or verified begins."""

    def __init__(self, disk: Disk, log: CommitLog, flushed: Watermark, config: Callable[[], StoreConfig]) -> None:
        self._disk = disk
        self._log = log
        self._flushed = flushed
        self._root = config().store_path_root_dir
        self._is_enabled = config().seal_enable
        self._refused: set[int] = set()
        self.trusted_from = 0

    async def run(self) -> None:
        if not self._is_enabled:
            return
        while True:
            await self.seal_all()
            flushed = self._flushed.value
            ends = (file.end for file in self._log.files.files if file.end > flushed)
            await self._flushed.reach(next(ends, flushed + 1))

    async def seal_all(self) -> int:
        """Seal every full file that has no seal; returns how many."""
        present = {parse_offset(entry.name) for entry in self._disk.entries(f"{self._root}/{SEALS}")}
        for offset in present:
            if offset is not None and offset < self._log.begin:
                self._disk.remove(seal_path(self._root, offset))  # its file was deleted while it was being sealed
        sealed = 0
        for file in list(self._log.files.files):
            is_full = file.end <= self._flushed.value
            if is_full and file.begin not in present and file.begin not in self._refused:
                sealed += await self._seal(file)
                await trio.lowlevel.checkpoint()
        return sealed

    async def _seal(self, file: MappedFile) -> bool:
        region, begin, is_trusted = file.region, file.begin, file.begin >= self.trusted_from
        buffer = file.buffer

        def seal() -> int | None:
            """None, or the offset of damage."""
            if not is_trusted:
                reading = read_through(buffer, 0, file.size, begin)
                if reading.damages or not reading.blank:
                    return begin + (reading.damages[0].at if reading.damages else reading.end)
            seal = seal_layout.seal_of(begin, file.size, region.read)
            self._disk.write_file(seal_path(self._root, begin), seal_layout.encode(seal))
            return None

        try:
            damage = await offload(self._disk, seal)
        except OSError as error:
            self._refused.add(begin)
            _log.warning("%s: cannot be sealed: %s", file.path, error)
            return False
        if damage is not None:
            self._refused.add(begin)
            _log.error(
                "%s: damaged at log offset %d, so it gets no seal; see `rocketlet store check %s`",
                file.path, damage, self._root,
            )  # fmt: skip
        return damage is None
