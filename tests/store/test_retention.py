from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.clock import TrioWallClock
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue_table import MANY
from rocketlet.store.disk import Usage
from rocketlet.store.errors import DiskFull, FlushFailed
from rocketlet.store.layout.file_names import index_name
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.retention import Pressure, full_error, pressure_of, reason_to_delete
from tests.support.store_model import ROOT, message, small_config

GIB = 1 << 30
NOW = int(datetime(2026, 3, 3, 4, 30).timestamp() * 1000)  # half past four, so deleteWhen=04 holds
NOON = int(datetime(2026, 3, 3, 12, 0).timestamp() * 1000)
DAYS = 24 * 3_600_000


@pytest.mark.parametrize(
    ("used_percent", "total", "expected"),
    [
        (50, 10 * GIB, Pressure.NONE),
        (76, 10 * GIB, Pressure.CLEAN),
        (86, 10 * GIB, Pressure.FORCED),
        (91, 10 * GIB, Pressure.FULL),
        (91, 1000 * GIB, Pressure.NONE),  # ninety GiB are free
        (99, 1000 * GIB, Pressure.FORCED),  # ten GiB are: not enough, and not too little
        (99, 700 * GIB, Pressure.FULL),
        (50, GIB // 8, Pressure.FULL),  # less than the floor
    ],
)
def test_pressure(used_percent: int, total: int, expected: Pressure) -> None:
    assert pressure_of(Usage(total, total * (100 - used_percent) // 100), StoreConfig()) is expected


@pytest.mark.parametrize("total", [10 * GIB, 100 * GIB, 250 * GIB, 1000 * GIB, 10_000 * GIB])
def test_forced_cleaning_begins_well_before_sends_are_refused(total: int) -> None:
    """Ten 1 GiB files per second are deleted then, which keeps a log away from the point of refusal."""
    forced = [free for free in range(0, total // 2, total // 20_000)
              if pressure_of(Usage(total, free), StoreConfig()) is Pressure.FORCED]  # fmt: skip
    assert max(forced) - min(forced) >= min(total // 25, 3 * GIB) - total // 10_000


@given(st.integers(1, 1 << 45), st.integers(0, 1 << 40), st.integers(0, 1 << 36), st.data())
def test_no_pressure_step_is_skipped(total: int, enough: int, floor: int, data: st.DataObject) -> None:
    config = StoreConfig(disk_free_enough=enough, disk_free_floor=floor)
    frees = sorted(data.draw(st.lists(st.integers(0, total), min_size=2, max_size=9)), reverse=True)
    found = [pressure_of(Usage(total, free), config) for free in frees]
    assert found == sorted(found)


@given(st.integers(0, 100), st.integers(1, 1 << 50))
def test_a_fuller_disk_never_lowers_the_pressure(percent: int, total: int) -> None:
    config = StoreConfig(disk_free_enough=0, disk_free_floor=0)
    less = pressure_of(Usage(total, total * (100 - percent) // 100), config)
    more = pressure_of(Usage(total, total * (100 - percent) // 200), config)
    assert more >= less


@pytest.mark.parametrize(
    ("age_days", "now", "pressure", "asked", "goes"),
    [
        (2, NOW, Pressure.NONE, False, False),
        (4, NOW, Pressure.NONE, False, True),
        (4, NOON, Pressure.NONE, False, False),
        (4, NOON, Pressure.NONE, True, True),
        (4, NOON, Pressure.CLEAN, False, True),
        (2, NOON, Pressure.CLEAN, True, False),
        (0, NOON, Pressure.FORCED, False, True),
        (0, NOON, Pressure.FULL, False, True),
    ],
)
def test_when_a_file_is_deleted(age_days: int, now: int, pressure: Pressure, asked: bool, goes: bool) -> None:
    assert bool(reason_to_delete(age_days * DAYS, now, pressure, asked, StoreConfig())) is goes


def test_files_are_never_deleted_early_if_forbidden() -> None:
    assert not reason_to_delete(0, NOON, Pressure.FULL, False, StoreConfig(clean_file_forcibly_enable=False))


def test_the_error_names_path_ratio_and_setting() -> None:
    text = str(full_error("/data/commitlog", Usage(100 * GIB, 5 * GIB), StoreConfig()))
    assert "/data/commitlog" in text
    assert "95.0%" in text
    assert "diskSpaceWarningLevelRatio (90 %)" in text
    text = str(full_error("/data/commitlog", Usage(100 * GIB, 1 << 20), StoreConfig()))
    assert "diskFreeFloor (128 MiB)" in text


async def store_with(count: int, disk: MemoryDisk, clock: object = lambda: NOW, **settings: object) -> MessageStore:
    store = MessageStore(disk, small_config(**settings), clock, on_progress=lambda _: None)  # type: ignore[arg-type]
    await store.open()
    for number in range(count):
        store.put(message("T", number % 2, b"x" * 200, (b"k%d" % number,)))
    store.settle()
    await store._log_flush.flush_once()
    await store._thorough.save()
    return store


async def test_one_file_a_tick_and_queues_and_index_follow(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(page_size=64, now=NOW - 4 * DAYS)
    store = await store_with(40, disk)
    files = len(store.log.files.files)
    assert files == 7
    with caplog.at_level(logging.WARNING, "rocketlet.store.retention"):
        assert await store._retention.tick()
    assert len(store.log.files.files) == files - 1
    assert "messages stored from" in caplog.text
    assert f"{ROOT}/commitlog/00000000000000000000" in caplog.text
    begin = store.queue_begin("T", 0)
    assert begin == 3
    queue = store.queue("T", 0)
    assert queue is not None
    entry = queue.entry(begin)
    assert entry is not None
    assert entry[0] >= store.log.begin
    while await store._retention.tick():
        pass
    assert len(store.log.files.files) == 1  # never the last
    assert queue.files.begin > 0
    assert store.index.files[0].table.end_log_offset >= store.log.begin
    assert not store.find_by_key("T", "k0", 32, 0, 1 << 62).records
    await store.close()
    again = MessageStore(disk, small_config(), lambda: NOW, on_progress=lambda _: None)
    report = await again.open()
    assert not report.changed
    assert again.queue_begin("T", 0) == store.queue_begin("T", 0)


async def test_a_file_that_somebody_else_deleted_leaves_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """To make room, say, by hand. It ended the broker at the next look, with nothing but "No such file"."""
    disk = MemoryDisk(page_size=64, now=NOW)
    store = await store_with(40, disk)
    first = store.log.files.files[0]
    disk.remove(first.path)
    assert await store._retention.tick()
    assert f"{first.path} was deleted while the broker runs: its messages are lost" in caplog.text
    assert store.log.begin == first.end
    assert store.queue_begin("T", 0) == 3
    assert not await store._retention.tick(), "the others are young"
    await store.close()
    again = MessageStore(disk, small_config(), lambda: NOW, on_progress=lambda _: None)
    assert not (await again.open()).changed


async def test_a_topic_deleted_while_queues_follow_the_log_ends_nothing() -> None:
    disk = MemoryDisk(page_size=64, now=NOW - 4 * DAYS)
    store = await store_with(40, disk)
    for queue_id in range(200):
        store.put(message("Wide", queue_id, b"x"))
    store.settle()
    await store._log_flush.flush_once()
    await store._thorough.save()

    async def delete_the_topic() -> None:
        while store.queue_begin("T", 0) == 0:
            await trio.lowlevel.checkpoint()
        store.drop_topic("Wide")
        await store.remove_dropped()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_the_topic)
        await store._retention.tick(requested=True)
    await store.close()


async def test_young_files_are_kept() -> None:
    store = await store_with(40, MemoryDisk(page_size=64, now=NOW - 2 * DAYS))
    assert not await store._retention.tick()
    assert await store.delete_expired() == 0


async def test_what_a_recovery_might_need_is_kept() -> None:
    disk = MemoryDisk(page_size=64)
    store = MessageStore(disk, small_config(), lambda: NOW, on_progress=lambda _: None)
    await store.open()
    for _ in range(40):
        store.put(message("T", 0, b"x" * 200))
    store.settle()
    assert not await store._retention.tick()
    await store._log_flush.flush_once()
    assert not await store._retention.tick()
    await store._thorough.save()
    assert await store._retention.tick()


async def test_a_nearly_full_disk_deletes_the_oldest_and_then_refuses(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(page_size=64, now=NOW)
    store = await store_with(40, disk)
    used = disk.statistics().reserved_bytes
    disk.capacity = int(used / 0.88)
    assert await store._retention.tick()  # forced, though young
    assert not store.refusal
    disk.capacity = int(disk.statistics().reserved_bytes / 0.95)
    await store._retention.look(store.config)
    assert "diskSpaceWarningLevelRatio" in store.refusal
    with pytest.raises(DiskFull, match=r"95.*%"):
        store.put(message("T", 0, b""))
    assert store.get("T", 0, store.queue_begin("T", 0), 32).count
    with caplog.at_level(logging.WARNING, "rocketlet.store.message_store"):
        while await store._retention.tick():
            pass
    assert not store.refusal
    assert "they are taken again" in caplog.text
    store.put(message("T", 0, b""))


async def test_retention_runs_beside_the_store(autojump_clock: trio.testing.MockClock) -> None:
    clock = TrioWallClock(NOW, autojump_clock)
    disk = MemoryDisk(page_size=64, now=NOW - 4 * DAYS)
    store = await store_with(40, disk, clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(5)  # all in one pass, a tenth of a second apart
        assert len(store.log.files.files) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stamp", [1 << 62, 253_402_300_800_000, -5, 0])
async def test_a_file_with_a_damaged_time_expires_like_others(stamp: int, caplog: pytest.LogCaptureFixture) -> None:
    """No checksum covers a store timestamp, and each start met this file again."""
    disk = MemoryDisk(page_size=64, now=NOW - 4 * DAYS)
    store = await store_with(40, disk)
    store.log.files.files[0].buffer[56:64] = stamp.to_bytes(8, "big", signed=True)
    with caplog.at_level(logging.WARNING, "rocketlet.store.retention"):
        assert await store._retention.tick()
    assert "messages stored from" in caplog.text


def test_an_index_file_with_a_damaged_time_gets_a_name() -> None:
    assert index_name(1 << 62)[:4] == "9999"


@pytest.mark.parametrize(("folder", "queues"), [("commitlog", 1), ("consumequeue/T/0", 1), ("consumequeue", MANY + 1)])
async def test_removing_the_directory_fails_the_next_flush(folder: str, queues: int, tmp_path: Path) -> None:
    config = small_config(store_path_root_dir=str(tmp_path), flush_interval_commit_log=1)
    store = MessageStore(RealDisk(), config, lambda: NOW, on_progress=lambda _: None)
    await store.open()
    for queue_id in range(queues):
        store.put(message("T", queue_id, b"kept"))
    await store.flush()
    await store._thorough.save()
    shutil.rmtree(tmp_path / folder)
    for queue_id in range(queues):
        store.put(message("T", queue_id, b"written to a file that nobody will find"))
    store.settle()
    with pytest.raises(FlushFailed, match="deleted while this process had it open"):
        await store.flush()
        await store._thorough.save()
    with suppress(FlushFailed):
        await store.close()
    assert (tmp_path / "abort").exists()  # so that the next start reads all of it
