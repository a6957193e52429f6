"""Truncating a replica's log: whatever a crash leaves in between, the result is the same."""

from __future__ import annotations

import json
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rocketlet.failover import truncation
from rocketlet.failover.epochs import Epochs
from rocketlet.failover.own_state import OwnState, OwnStateFile
from rocketlet.store.config import FlushDiskType, StoreConfig
from rocketlet.store.layout.file_names import TOMBSTONES
from rocketlet.store.memory_disk import MemoryDisk, PowerCut
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore
from tests.support.virtual_time import ManualClock

CONFIG = StoreConfig(
    store_path_root_dir="store",
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=100,
    max_index_num=400,
    max_message_size=1024,
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
)
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")


def message(number: int) -> Put:
    return Put("T", number % 2, b"%d" % number * 40, b"", born_host=HOST, store_host=HOST)


async def filled(count: int, *, sealed: bool = False) -> tuple[MemoryDisk, list[int]]:
    """The store of a killed process, and the ends of its messages."""
    disk = MemoryDisk(page_size=512)
    store = MessageStore(disk, CONFIG, ManualClock())
    await store.open()
    ends = []
    for number in range(count):
        ends.append(store.put(message(number)).end)
        store.settle()
    await store.flush()
    if sealed:
        assert await store._seals.seal_all()
    OwnStateFile(disk, CONFIG).write(OwnState("s", "g", 3, Epochs([(1, 0), (2, ends[4]), (3, ends[-1])])))
    return disk.copy(), ends


def finish(disk: MemoryDisk) -> OwnState:
    file = OwnStateFile(disk, CONFIG)
    return truncation.finish(disk, CONFIG, file, file.open("another"))


async def bodies(disk: MemoryDisk) -> tuple[list[bytes], int]:
    store = MessageStore(disk, CONFIG, ManualClock())
    report = await store.open()
    assert not report.losses
    found = []
    for queue in range(2):
        result = store.get("T", queue, 0, 1000)
        found += [bytes(part) for part in result.slices]
    end = store.log.end
    await store.close()
    return found, end


@pytest.mark.parametrize("kept", [0, 1, 7, 20, 39])
async def test_the_log_ends_at_the_cut_and_the_rest_is_kept_aside(kept: int, autojump_clock: MockClock) -> None:
    disk, ends = await filled(40)
    cut = ends[kept - 1] if kept else 0
    before = b"".join(data for path, data in disk.files().items() if "/commitlog/" in path)
    truncation.intend(disk, CONFIG, truncation.Intent(cut, ends[-1], 4))
    state = finish(disk)
    assert state.epochs.entries == tuple(epoch for epoch in [(1, 0), (2, ends[4]), (3, ends[-1])] if epoch[1] < cut)
    assert (state.store, state.promised) == ("s", 3)
    cut_files = truncation.cut_files(disk, CONFIG)
    assert (cut_files.files, cut_files.size) == (1, ends[-1] - cut)
    (aside,) = [data for path, data in disk.files().items() if "/rocketlet/cut/" in path]
    assert aside == before[cut : ends[-1]]
    found, end = await bodies(disk)
    assert end == cut
    assert sum(b"%d" % number * 40 in b"".join(found) for number in range(kept)) == kept
    assert finish(disk) == state, "there is nothing left to do"


async def test_what_comes_instead_of_the_cut_bytes_was_not_deleted(autojump_clock: MockClock) -> None:
    disk, ends = await filled(40)
    gone = [[1, "group", "G", 0], [2, "topic", "T", ends[-1]], [3, "topic", "U", ends[2]]]
    disk.write_file(f"store/{TOMBSTONES}", json.dumps({"next": 4, "gone": gone}).encode())
    truncation.intend(disk, CONFIG, truncation.Intent(ends[6], ends[-1], 4))
    finish(disk)
    assert json.loads(disk.read_file(f"store/{TOMBSTONES}") or b"") == {
        "next": 4, "gone": [[1, "group", "G", 0], [2, "topic", "T", ends[6]], [3, "topic", "U", ends[2]]]
    }  # fmt: skip
    store = MessageStore(disk, CONFIG, ManualClock())
    await store.open()
    assert store.put(message(40)).end <= ends[-1]
    store.settle()
    assert [len(part) for part in store.get("T", 0, 0, 10).slices]
    assert (await bodies(disk.copy()))[0]


@pytest.mark.parametrize("kept", [0, 7, 30])
async def test_what_proved_that_the_cut_bytes_were_flushed_goes_with_them(kept: int, autojump_clock: MockClock) -> None:
    disk, ends = await filled(80, sealed=True)
    cut = ends[kept - 1] if kept else 0
    truncation.intend(disk, CONFIG, truncation.Intent(cut, ends[-1], 4))
    finish(disk)
    assert (await bodies(disk))[1] == cut


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 7, 30])
async def test_a_power_cut_at_any_write_leaves_the_same_outcome(kept: int, autojump_clock: MockClock) -> None:
    disk, ends = await filled(40)
    cut = ends[kept - 1] if kept else 0
    before = b"".join(data for path, data in disk.files().items() if "/commitlog/" in path)
    truncation.intend(disk, CONFIG, truncation.Intent(cut, ends[-1], 4))
    step = 0
    while True:
        random = Random(step)
        torn = disk.copy()
        torn.power_cut_in = step
        try:
            finish(torn)
            break
        except PowerCut:
            step += 1
        after = torn.crash(random)
        again = 0
        while True:  # and again, while it is repeated
            once_more = after.copy()
            once_more.power_cut_in = random.randrange(40) if again < 2 else None
            try:
                finish(once_more)
                break
            except PowerCut:
                after, again = once_more.crash(random), again + 1
        once_more.power_cut_in = None
        (aside,) = [data for path, data in once_more.files().items() if "/rocketlet/cut/" in path]
        assert aside == before[cut : ends[-1]], f"step {step}"
        found, end = await bodies(once_more)
        assert end == cut, f"step {step}"
        assert sum(b"%d" % number * 40 in b"".join(found) for number in range(kept)) == kept
    assert step > 5
    await trio.lowlevel.checkpoint()
