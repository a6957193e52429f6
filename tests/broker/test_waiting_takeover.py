"""A Java broker's directory with pending delays and transactions: ours continues where it stopped."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import trio

from rocketlet.common.clock import TrioWallClock
from rocketlet.common.topic import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.waiting_parts import DELAYS, OFFSETS, waiting

# The sizes of the recorded store.
LAYOUT = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 1000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
STOPPED = 1795006340000
LAST_DELIVERY = 1795013520729


@pytest.fixture
def disk(vectors: Path) -> MemoryDisk:
    """The recorded directory of a broker that was stopped two hours before its last delayed messages are due."""
    disk = MemoryDisk()
    with tarfile.open(vectors / "stores" / "mixed" / "store.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                disk.put_file(member.name, content.read())
    return disk


@pytest.mark.parametrize("offsets", ["as they are", "lost", "too old"])
async def test_delays_continue_after_takeover(
    autojump_clock: trio.testing.MockClock, disk: MemoryDisk, offsets: str
) -> None:
    if offsets == "lost":
        disk.remove(DELAYS)  # in which case Java delivers everything again
    elif offsets == "too old":
        disk.write_file(DELAYS, b'{"offsetTable":{1:2,3:0}}')
    async with waiting(disk, TrioWallClock(STOPPED), **LAYOUT) as parts:
        before = [parts.bodies("TopicD", queue_id) for queue_id in (0, 1)]
        retries = parts.bodies("%RETRY%CG_mixed")
        assert [len(bodies) for bodies in before] == [1, 3]
        await trio.sleep((LAST_DELIVERY - STOPPED) / 1000 - 1)
        assert [parts.bodies("TopicD", queue_id) for queue_id in (0, 1)] == before
        await trio.sleep(2)
        new = [parts.bodies("TopicD", queue_id)[len(before[queue_id]) :] for queue_id in (0, 1)]
        assert [len(bodies) for bodies in new] == [1, 1]
        assert parts.bodies("%RETRY%CG_mixed") == retries
        assert {level: offset for level, offset, _ in parts.delivery.progress() if offset} == {
            1: 5,
            2: 1,
            3: 1,
            18: 2,
        }


async def test_transactions_continue_after_takeover(autojump_clock: trio.testing.MockClock, disk: MemoryDisk) -> None:
    async with waiting(disk, TrioWallClock(STOPPED), deliver=False, **LAYOUT) as parts:
        assert (parts.halves.next_open(), parts.halves.end()) == (11, 11)
        assert parts.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 11
        assert parts.offsets.get(TRANSACTION_GROUP, OP_HALF_TOPIC, 0) == 5
        await trio.sleep(10)
        await parts.check.check()
        assert parts.producer.checks == []


async def test_transactions_continue_after_takeover_without_offsets(
    autojump_clock: trio.testing.MockClock, disk: MemoryDisk
) -> None:
    """From the queues only: six are over; of the one given up only its last copy is open."""
    disk.remove(OFFSETS)
    async with waiting(disk, TrioWallClock(STOPPED), deliver=False, **LAYOUT) as parts:
        assert [parts.halves.is_over(offset) for offset in range(11)] == [True] * 10 + [False]
        committed = [*parts.bodies("TopicT", 0), *parts.bodies("TopicT", 1)]
        await trio.sleep(10)
        await parts.check.check()
        assert [*parts.bodies("TopicT", 0), *parts.bodies("TopicT", 1)] == committed
