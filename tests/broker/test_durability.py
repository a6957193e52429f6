"""Acknowledgments wait for what they promise, and no file is ahead of the disk."""

from __future__ import annotations

import weakref
from random import Random

import pytest
import trio

from rocketlet.broker.durability import (
    AfterFlush,
    ByWatermark,
    Promise,
    Shortfall,
    Then,
    call_when_all_decided,
    promised,
)
from rocketlet.common.clock import TrioWallClock
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.config import BrokerRole, FlushDiskType, StoreConfig
from rocketlet.store.errors import FlushFailed
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.watermark import Watermark
from tests.support.virtual_time import START_MS, ManualClock
from tests.support.waiting_parts import waiting

LATE = ResponseCode.FLUSH_DISK_TIMEOUT


class Never:
    """A guarantee that is missed at once."""

    def call(self, end: int, then: Then) -> None:
        then(Shortfall(ResponseCode.SLAVE_NOT_AVAILABLE, None, 0))


def guarantee(reached: Watermark, nursery: trio.Nursery, timeout_ms: float = 1000) -> ByWatermark:
    return ByWatermark(reached, lambda: timeout_ms, lambda ms: (LATE, f"not within {ms:g} ms"), nursery)


async def test_a_broker_that_ends_keeps_nobody_who_waited(autojump_clock: trio.testing.MockClock) -> None:
    class Waiting:
        def __call__(self, short: Shortfall | None) -> None:
            raise AssertionError("nobody was to be called")

    reached, first, second = Watermark(10), Waiting(), Waiting()
    refs = weakref.ref(first), weakref.ref(second)
    async with trio.open_nursery() as nursery:
        waits = guarantee(reached, nursery)
        waits.call(20, first)
        waits.call(30, second)
        del first, second
        await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    assert [ref() for ref in refs] == [None, None]
    reached.advance(40)


async def test_a_waiter_is_called_when_the_watermark_is_reached(autojump_clock: trio.testing.MockClock) -> None:
    reached, told = Watermark(10), list[tuple[int, Shortfall | None]]()
    async with trio.open_nursery() as nursery:
        waits = guarantee(reached, nursery)
        for end in (10, 20, 15, 30):
            waits.call(end, lambda short, end=end: told.append((end, short)))  # type: ignore[misc]
        assert told == [(10, None)], "the first was reached already"
        reached.advance(25)
        assert told == [(10, None), (15, None), (20, None)]
        reached.advance(30)
    assert told[3:] == [(30, None)]


async def test_a_waiter_that_times_out_learns_how_far_the_watermark_got(autojump_clock: trio.testing.MockClock) -> None:
    reached, told = Watermark(0), list[Shortfall | None]()
    async with trio.open_nursery() as nursery:
        waits = guarantee(reached, nursery, 500)
        waits.call(10, told.append)
        await trio.sleep(0.4)
        reached.advance(7)
        assert told == []
        waits.call(11, told.append)
        await trio.sleep(0.2)
        assert told == [Shortfall(LATE, "not within 500 ms", 7)]
        reached.advance(10)
        await trio.sleep(0.2)
        assert len(told) == 1, "each has a deadline of its own, and is called once"
    assert told[1:] == [Shortfall(LATE, "not within 500 ms", 10)]


async def test_a_failed_watermark_keeps_its_position() -> None:
    reached, told = Watermark(10), list[Shortfall | None]()
    async with trio.open_nursery() as nursery:
        waits = guarantee(reached, nursery)
        waits.call(20, told.append)
        reached.fail(FlushFailed("broken"))
        waits.call(10, told.append)
        waits.call(11, told.append)
        nursery.cancel_scope.cancel()
    failed = Shortfall(ResponseCode.SYSTEM_ERROR, "broken", 0)
    assert told == [failed, None, failed]


async def test_the_last_guarantee_missed_is_reported_unless_one_failed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told = list[Shortfall | None]()
    first, second = Watermark(10), Watermark(0)
    async with trio.open_nursery() as nursery:
        both = [guarantee(first, nursery, 500), guarantee(second, nursery, 900)]
        call_when_all_decided(both, 10, told.append)
        assert told == []
        second.advance(10)
        assert told == [None]
        call_when_all_decided(both, 20, told.append)
        await trio.sleep(0.6)
        assert len(told) == 1, "the second has still time"
        await trio.sleep(0.4)
        assert told[1:] == [Shortfall(LATE, "not within 900 ms", 10)]
        call_when_all_decided([both[0], Never()], 10, told.append)
        assert told[2:] == [Shortfall(ResponseCode.SLAVE_NOT_AVAILABLE, None, 0)]
        first.fail(FlushFailed("broken"))
        call_when_all_decided([both[0], Never()], 20, told.append)
        assert told[3:] == [Shortfall(ResponseCode.SYSTEM_ERROR, "broken", 0)]


def test_settings_decide_the_guarantees() -> None:
    sync, master = FlushDiskType.SYNC_FLUSH, BrokerRole.SYNC_MASTER
    assert promised(StoreConfig()) == []
    assert promised(StoreConfig(flush_disk_type=sync)) == [Promise.FLUSHED]
    assert promised(StoreConfig(broker_role=master)) == [Promise.REPLICATED]
    assert promised(StoreConfig(flush_disk_type=sync, broker_role=master)) == [Promise.FLUSHED, Promise.REPLICATED]


async def test_latest_flushed_offset() -> None:
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


async def test_a_put_after_a_flush_waits_for_the_next_flush() -> None:
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


async def test_after_a_failed_flush_nothing_is_guaranteed() -> None:
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
async def test_a_delivery_that_was_never_flushed(autojump_clock: trio.testing.MockClock, seed: int) -> None:
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
async def test_a_copy_that_was_never_flushed(autojump_clock: trio.testing.MockClock, seed: int) -> None:
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
        assert len(parts.producer.checks) == 1
        parts.commit(half)
        assert parts.bodies("T") == [b"x"]
