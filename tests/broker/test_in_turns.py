"""Large tables leave room for other tasks."""

from __future__ import annotations

import time

import msgspec
import pytest
import trio

from rocketlet.broker import in_turns as module
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.in_turns import in_turns
from rocketlet.broker.json_file import JsonFile
from rocketlet.common import fastjson
from rocketlet.store.memory_disk import MemoryDisk


async def test_other_tasks_run_between_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr(module, "stopwatch", lambda: next(clock) * 0.004)
    seen: list[int] = []
    others: list[int] = []

    async def other() -> None:
        while True:
            others.append(len(seen))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await in_turns(range(1000), seen.append)
        nursery.cancel_scope.cancel()
    assert seen == list(range(1000))
    assert len(set(others)) > 10


async def test_little_work_is_done_at_once() -> None:
    began = trio.lowlevel.current_statistics().tasks_living
    seen: list[int] = []
    await in_turns(range(20), seen.append)
    assert seen == list(range(20))
    assert trio.lowlevel.current_statistics().tasks_living == began


def table(groups: int, queues: int = 4) -> ConsumerOffsets:
    offsets = ConsumerOffsets()
    for group in range(groups):
        for queue in range(queues):
            offsets.commit(f"G{group}", "T", queue, group + queue)
    return offsets


@pytest.mark.parametrize("groups", [0, 1, 3])
async def test_the_file_of_offsets_says_what_the_body_says(groups: int) -> None:
    offsets = table(groups)
    file = JsonFile(MemoryDisk(), "/c/consumerOffset.json", pieces=offsets.pieces)
    file.changed()
    await file.saved()
    read = file.load()
    assert read == fastjson.loads(msgspec.json.encode(offsets.to_body()))
    again = ConsumerOffsets()
    again.load(read)
    assert again.to_body() == offsets.to_body()


async def test_a_table_that_changes_while_it_is_written_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stopwatch", lambda: time.perf_counter() * 1000)
    offsets = table(500)
    file = JsonFile(MemoryDisk(), "/c/consumerOffset.json", pieces=offsets.pieces)
    file.changed()

    async def change() -> None:
        for group in range(500):
            offsets.forget_group(f"G{group}") if group % 3 == 0 else offsets.commit(f"G{group}", "T", 9, 1)
            offsets.commit(f"new{group}", "T", 0, 1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await file.saved()
    read = ConsumerOffsets()
    read.load(file.load())
    for group in range(500):
        if group % 3:
            assert [read.get(f"G{group}", "T", queue) for queue in range(4)] == [group + n for n in range(4)]
