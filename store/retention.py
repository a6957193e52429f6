"""Deletion of old data: log files past their time, or the oldest ones when the disk runs full; queues and index follow.

One file a tick, oldest first, never the last one, and none that a recovery might need. Each deletion is logged before
it happens. A reader that holds a slice of a deleted file keeps it; the space is freed when the slice is dropped.

How full is too full: RocketMQ's three ratios (75, 85, 90 % of what can be used). A tenth of a large disk is a lot, so
none of them counts while `diskFreeEnough` is free, and below that the three keep their distances: with 20 GiB enough,
the steps are at 20, 12 and 8 GiB free. Below `diskFreeFloor` sends are refused whatever the ratio, so that what was
sent can still be filed; below twice that the oldest files go. Sends are accepted again automatically.

Java: store/DefaultMessageStore.java (CleanCommitLogService, CleanConsumeQueueService)
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from functools import partial

import trio

from rocketlet.common.clock import WallClock
from rocketlet.common.moment import moment_of
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.disk import Disk, Usage
from rocketlet.store.errors import DiskFull
from rocketlet.store.layout.file_names import SEALS, offset_name
from rocketlet.store.lookup import Lookup
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.offload import offload

_log = logging.getLogger("rocketlet.store.retention")

_HOUR = 3_600_000
_PAUSE = 0.1  # s between two files while there are more to delete
_AT_ONCE = 64  # queues corrected before others may run


class Pressure(enum.IntEnum):
    """What the state of the disk calls for."""

    NONE = 0
    CLEAN = 1  # files past their time are deleted at any hour
    FORCED = 2  # the oldest file is deleted whatever its age
    FULL = 3  # and sends are refused


def pressure_of(usage: Usage, config: StoreConfig) -> Pressure:
    """How full a disk is by the settings."""
    if usage.free < config.disk_free_floor or _is_past(config.disk_space_warning_level_ratio, usage, config):
        return Pressure.FULL
    if usage.free < 2 * config.disk_free_floor or _is_past(config.disk_space_clean_forcibly_ratio, usage, config):
        return Pressure.FORCED
    return Pressure.CLEAN if _is_past(config.disk_max_used_space_ratio, usage, config) else Pressure.NONE


def _is_past(percent: int, usage: Usage, config: StoreConfig) -> bool:
    """Whether more than so many percent are used; of a large disk, whether less is free than that step asks for."""
    if usage.ratio * 100 <= percent:
        return False
    first = 100 - config.disk_max_used_space_ratio
    share = min((100 - percent) / first, 1) if first else 1
    return not config.disk_free_enough or usage.free < config.disk_free_enough * share


def reason_to_delete(age_ms: int, now_ms: int, pressure: Pressure, requested: bool, config: StoreConfig) -> str:
    """Why a file of this age is deleted now; empty if it stays. `requested`: deletion was asked for at any hour."""
    if pressure >= Pressure.FORCED and config.clean_file_forcibly_enable:
        return "the disk is nearly full"
    if age_ms < config.file_reserved_time * _HOUR:
        return ""
    hour = moment_of(now_ms).hour
    if requested or pressure >= Pressure.CLEAN or hour in map(int, config.delete_when):
        return f"it is older than fileReservedTime {config.file_reserved_time} h"
    return ""


class Retention:
    """The deleting of one store's files. `refuse` is told of a full disk, and of its end by None."""

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        queues: ConsumeQueueTable,
        index: MessageIndex,
        clock: WallClock,
        config: Callable[[], StoreConfig],
        safe_end: Callable[[], int],
        refuse: Callable[[DiskFull | None], None],
        lookup: Lookup,
    ) -> None:
        """`safe_end`: up to where the log is flushed, and a recovery need not look at it any more."""
        self._disk = disk
        self._log = log
        self._queues = queues
        self._index = index
        self._clock = clock
        self._config = config
        self._safe_end = safe_end
        self._refuse = refuse
        self._lookup = lookup
        self.deleted = 0

    async def run(self) -> None:
        while True:
            deleted = await self.tick()
            await trio.sleep(_PAUSE if deleted else self._config().clean_resource_interval / 1000)

    async def tick(self, *, requested: bool = False) -> bool:
        """Check the disk, and delete at most one log file with the entries that refer to it; whether one was
        deleted."""
        config = self._config()
        pressure = await self.look(config)
        if len(self._log.files.files) < 2:
            return False
        first = self._log.files.files[0]
        if first.end > self._safe_end():
            return False
        now = self._clock()
        try:
            modified = self._disk.modified(first.path)
        except FileNotFoundError:  # of the newest file, into which sends go, the next flush fails
            _log.error("%s was deleted while the broker runs: its messages are lost", first.path)
            reason = "somebody else has deleted it"
        else:
            reason = reason_to_delete(now - modified, now, pressure, requested, config)
        if not reason:
            return False
        begin, end = [_time(await self._store_time_of(log_offset)) for log_offset in (first.begin, first.end)]
        if self._log.files.files[0] is not first:
            return False  # somebody else has just deleted it
        _log.warning(
            "deleting %s (%d bytes of log from offset %d, messages stored from %s to %s): %s", first.path, first.size,
            first.begin, begin, end, reason,
        )  # fmt: skip
        path = self._log.files.release_first()
        seal = f"{config.store_path_root_dir}/{SEALS}/{offset_name(first.begin)}"

        def remove() -> None:
            self._disk.remove(path)
            self._disk.remove(seal)
            self._disk.sync_directory(self._log.files.directory)

        await offload(self._disk, remove)
        self.deleted += 1
        await self.clean_queues()
        return True

    async def _store_time_of(self, log_offset: int) -> int:
        return await self._lookup.with_cold_reads(partial(self._lookup.store_time_of, log_offset))

    async def look(self, config: StoreConfig) -> Pressure:
        """How full the fuller of the two disks is; refuses sends, or takes them again."""
        worst, fullest = Pressure.NONE, None
        for path in dict.fromkeys((self._log.files.directory, config.store_path_root_dir)):
            usage = await offload(self._disk, lambda path=path: self._disk.usage(path))  # type: ignore[misc]
            pressure = pressure_of(usage, config)
            if pressure > worst:
                worst, fullest = pressure, (path, usage)
        self._refuse(full_error(*fullest, config) if worst is Pressure.FULL and fullest is not None else None)
        return worst

    async def clean_queues(self) -> None:
        """Let queues and index follow the beginning of the log."""
        begin, safe_end = self._log.begin, self._safe_end()
        for number, queue in enumerate(list(self._queues)):
            need = partial(self._lookup.need_entry, queue)
            await self._lookup.with_cold_reads(partial(queue.drop_before, begin, safe_end, need))
            if queue.ext is not None:
                queue.drop_ext_before()
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        self._index.drop_before(begin)


def full_error(path: str, usage: Usage, config: StoreConfig) -> DiskFull:
    """Says which disk, how full, by which setting, and what to do."""
    state = f"{path}: the disk is {usage.ratio:.1%} used, {usage.free >> 20} MiB free"
    if usage.free < config.disk_free_floor:
        rule = f"less than diskFreeFloor ({config.disk_free_floor >> 20} MiB)"
    else:
        rule = f"more than diskSpaceWarningLevelRatio ({config.disk_space_warning_level_ratio} %) allows"
    return DiskFull(f"{state}: {rule}; sends are refused until there is room. Free some, or lower fileReservedTime")


def _time(ms: int) -> str:
    return moment_of(ms).isoformat(" ", "seconds") if ms > 0 else "?"
