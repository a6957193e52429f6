from __future__ import annotations

from random import Random

import pytest

from rocketlet.store.checkpoint import CheckpointFile, Progress, read_progress, write_progress
from rocketlet.store.layout.checkpoint_layout import FILE_SIZE, Checkpoint, decode
from rocketlet.store.memory_disk import MemoryDisk, PowerCut
from tests.support.store_model import ROOT, StoreModel, message, small_config

PROGRESS = Progress(1000, 900, 100, 12345, 20231114221320007, 4, 900, {"T/0": 7, "%RETRY%g/1": 2})


def test_progress_round_trips() -> None:
    disk = MemoryDisk()
    assert read_progress(disk, ROOT) is None
    write_progress(disk, ROOT, PROGRESS)
    assert read_progress(disk, ROOT) == PROGRESS


def test_a_crash_leaves_the_old_or_the_new_progress() -> None:
    seen = set()
    for seed in range(60):
        disk = MemoryDisk(page_size=16)
        write_progress(disk, ROOT, PROGRESS)
        newer = Progress(2000, 1900, 100, 1, 2, 3, 4, {"T/0": 9})
        disk.power_cut_in = seed % 5
        try:
            write_progress(disk, ROOT, newer)
        except PowerCut:
            pass
        found = read_progress(disk.crash(Random(seed)), ROOT)
        assert found in (PROGRESS, newer)
        seen.add(found.log_offset if found else 0)
    assert seen == {1000, 2000}


@pytest.mark.parametrize("present", [None, b"", b"\0" * 10, b"\0" * FILE_SIZE])
def test_a_checkpoint_is_created_or_completed(present: bytes | None) -> None:
    disk = MemoryDisk()
    if present is not None:
        disk.put_file(f"{ROOT}/checkpoint", present)
    checkpoint = CheckpointFile(disk, ROOT)
    checkpoint.load()
    assert checkpoint.was_missing is (present is None)
    assert checkpoint.times == Checkpoint()
    checkpoint.times.log_timestamp = checkpoint.times.queue_timestamp = 1_700_000_000_000
    checkpoint.write()
    data = disk.files()[f"{ROOT}/checkpoint"]
    assert len(data) == FILE_SIZE
    assert decode(data) == Checkpoint(1_700_000_000_000, 1_700_000_000_000)
    again = CheckpointFile(disk, ROOT)
    again.load()
    assert again.times == checkpoint.times


def test_the_checkpoint_is_never_ahead_of_the_disk() -> None:
    """Its times belong to messages that are durable in log and queues; the index's to a file that is full and
    flushed."""
    model = StoreModel(small_config(), page_size=64)
    for number in range(30):
        model.put(message("T", 0, b"%d" % number, (b"k%d" % number,)))
        model.store.settle()
        if number % 7 == 3:
            model.run(model.store._log_flush.flush_once)
            model.run(model.store._thorough.save)
            times = decode(model.disk.files()[f"{ROOT}/checkpoint"])
            assert times.log_timestamp == times.queue_timestamp == model.kept[-1].at.store_timestamp
            full = [file.table.end_timestamp for file in model.store.index.files if file.table.is_full]
            assert times.index_timestamp == max(full, default=0)
    model.note_flushed()
    flushed = model.kept[model.durable - 1].at.store_timestamp
    assert decode(model.disk.files()[f"{ROOT}/checkpoint"]).log_timestamp <= flushed
