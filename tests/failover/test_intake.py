"""What comes from a leader: acknowledged as soon as it is whole, filed together a moment later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketlet.failover.intake import Intake
from rocketlet.store.config import FlushDiskType
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica
from tests.support.store_model import StoreModel, message, small_config

Log = tuple[bytes, list[int]]


@pytest.fixture(scope="module")
def leaders_log() -> Log:
    """Some files of a log, and where its records end."""
    model = StoreModel(small_config())
    ends = [model.store.put(message("T", 0, b"x" * (number % 50))).end for number in range(60)]
    model.store.settle()
    return b"".join(bytes(view) for _, view in model.store.log.file_views()), ends


@asynccontextmanager
async def follower(**settings: object) -> AsyncIterator[tuple[MessageStore, Replica, Intake]]:
    store = MessageStore(MemoryDisk(), small_config(**settings), lambda: 0, on_progress=lambda _: None)
    store.hold_unconfirmed()
    await store.open()
    replica = store.follow(lambda topic, properties: b"")
    yield store, replica, Intake(store, replica, store.settle)
    await store.close()


@given(seed=st.integers(0, 1 << 32))
def test_the_end_is_that_of_the_last_whole_record_however_the_bytes_are_cut(leaders_log: Log, seed: int) -> None:
    async def run() -> None:
        data, ends = leaders_log
        random, at = Random(seed), 0
        async with follower() as (store, replica, intake):
            while at < ends[-1]:
                upto = min(at + random.choice([1, 7, 50, 200, 1000]), ends[-1])
                intake.write(memoryview(data)[at:upto])
                at = upto
                whole = max((end for end in ends if end <= at), default=0)
                # The blank rest of a file belongs to it too, once all of it is there.
                assert whole <= intake.end <= at
                assert intake.end in (whole, at - at % store.log.file_size)
                if random.random() < 0.2:
                    intake.file()
                    assert store.log.end == intake.end
            intake.file()
            assert store.log.end == intake.end == ends[-1] == store.appended.value
            assert replica.drop_rest() == 0

    trio.run(run)


async def test_queues_are_filed_together_as_far_as_is_confirmed(leaders_log: Log, autojump_clock: MockClock) -> None:
    data, ends = leaders_log
    async with follower() as (store, _, intake):
        intake.write(memoryview(data)[: ends[2]])
        intake.confirm(ends[1])
        assert (intake.end, store.log.end, store.queue_end("T", 0)) == (ends[2], 0, 0)
        intake.confirm(ends[1])  # a turn that brings no bytes: the leader has no more
        assert (store.log.end, store.queue_end("T", 0)) == (ends[2], 2)
        intake.confirm(ends[2])
        assert store.queue_end("T", 0) == 3


async def record_by_record(log: Log, store: MessageStore, intake: Intake, pause: float) -> set[int]:
    """Hand over each record in a turn of its own; returns up to where they were filed after each."""
    data, ends = log
    filed = set()
    for begin, end in zip([0, *ends], ends, strict=False):
        intake.write(memoryview(data)[begin:end])
        intake.confirm(begin)
        filed.add(store.log.end)
        assert intake.end == end
        await trio.sleep(pause)
    return filed


async def test_while_bytes_keep_coming_they_are_filed_from_time_to_time(
    leaders_log: Log, autojump_clock: MockClock
) -> None:
    async with follower() as (store, _, intake):
        filed = await record_by_record(leaders_log, store, intake, 0.01)
        assert len(leaders_log[1]) / 10 < len(filed) < len(leaders_log[1]) / 4


async def test_no_more_records_wait_than_are_filed_quickly(
    leaders_log: Log, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketlet.failover.intake._MAX_UNFILED", 10)
    async with follower() as (store, _, intake):
        filed = await record_by_record(leaders_log, store, intake, 0)
        assert len(filed) >= len(leaders_log[1]) // 10


async def test_with_sync_flush_nothing_gathers(leaders_log: Log) -> None:
    data, ends = leaders_log
    async with follower(flush_disk_type=FlushDiskType.SYNC_FLUSH) as (store, _, intake):
        intake.write(memoryview(data)[: ends[2]])
        intake.confirm(ends[0])
        assert (store.log.end, store.queue_end("T", 0)) == (ends[2], 1)
