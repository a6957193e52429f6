"""Nothing is claimed that the disk does not have, and after a power cut nothing is missed for it."""

from __future__ import annotations

from random import Random

import pytest
import trio

from rocketlet.broker.after_flush import AfterFlush
from rocketlet.common.clock import TrioWallClock
from rocketlet.store.errors import FlushFailed
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.virtual_time import START_MS, ManualClock
from tests.support.waiting_parts import waiting


async def test_the_latest_that_is_flushed() -> None:
    async with waiting(MemoryDisk(), ManualClock(), deliver=False) as parts:
        taken: list[int] = []
        safe = AfterFlush(parts.store, taken.append)
        safe.note(0)
        assert taken == [0], "nothing is in the log yet"
        for number in range(1, 4):
            parts.send("T", b"x")
            safe.note(number)
        assert taken == [0]
        await parts.store.flush()
        assert taken == [0, 1, 3]
        safe.note(4)
        assert taken[-1] == 4


async def test_what_comes_behind_a_flush_waits_for_the_next() -> None:
    async with waiting(MemoryDisk(), ManualClock(), deliver=False) as parts:
        taken: list[int] = []
        safe = AfterFlush(parts.store, taken.append)
        parts.send("T", b"x")
        safe.note(1)
        end = parts.store.log.end
        parts.send("T", b"y")
        safe.note(2)
        parts.store.flushed.advance(end)
        assert taken == [1]
        await parts.store.flush()
        assert taken == [1, 2]


async def test_behind_a_failed_flush_nothing_is_claimed() -> None:
    disk = MemoryDisk()
    taken: list[int] = []
    with pytest.RaisesGroup(FlushFailed, flatten_subgroups=True):
        async with waiting(disk, ManualClock(), deliver=False) as parts:
            safe = AfterFlush(parts.store, taken.append)
            parts.send("T", b"x")
            safe.note(1)
            disk.fail_next_flush = True
            with pytest.raises(FlushFailed):
                await parts.store.flush()
            safe.note(2)
    assert taken == []


@pytest.mark.parametrize("seed", range(8))
async def test_a_delivery_whose_flush_never_came(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    disk, clock = MemoryDisk(page_size=128), TrioWallClock(START_MS)
    async with waiting(disk, clock, flush_interval_commit_log=60_000) as parts:
        parts.send("T", b"x", DELAY="1")
        await parts.store.flush()
        await trio.sleep(2)
        assert parts.bodies("T") == [b"x"]
        parts.save()
        left = disk.crash(Random(seed))
    async with waiting(left, clock) as parts:
        await trio.sleep(1)
        assert parts.bodies("T") == [b"x"]


@pytest.mark.parametrize("seed", range(8))
async def test_a_copy_whose_flush_never_came(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    disk, clock = MemoryDisk(page_size=128), TrioWallClock(START_MS)
    async with waiting(disk, clock, flush_interval_commit_log=600_000) as parts:
        half = parts.prepare("T", b"x")
        await parts.store.flush()
        for _ in range(2):
            await trio.sleep(7)
            await parts.check.check()
        parts.save()
        left = disk.crash(Random(seed))
    async with waiting(left, clock) as parts:
        assert parts.halves.next_open() < parts.halves.end()
        await trio.sleep(7)
        await parts.check.check()
        assert len(parts.producer.asked) == 1
        parts.commit(half)
        assert parts.bodies("T") == [b"x"]
