"""The flush of many queues lets others run, and one that is given up leaves nothing undone; those of the log take
turns."""

from __future__ import annotations

import gc
import threading
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from rocketlet.store.memory_disk import MemoryDisk, _File
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.real_region import RealRegion
from tests.support.store_model import message, small_config

QUEUES = 2000


async def opened(disk: MemoryDisk) -> MessageStore:
    store = MessageStore(disk, small_config(), lambda: 1_700_000_000_000, on_progress=lambda _: None)
    await store.open()
    return store


async def test_others_run_while_many_dirty_queues_are_looked_at() -> None:
    store = await opened(MemoryDisk(page_size=64))
    for queue_id in range(QUEUES):
        queue = store.queues.find_or_make("Wide", queue_id)
        queue.is_dirty = True
        store.queues.dirty.append(queue)
    store.put(message("T", 0, b"x"))
    await store.flush()
    flush = store.queues.flush_of_dirty(0)
    looked_at: list[int] = []

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            looked_at.append(len(flush._ends))

    store.queues.flush_of_dirty = lambda least_pages: flush  # type: ignore[method-assign]
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await store._thorough.save()
    trio.lowlevel.remove_instrument(steps)
    assert looked_at[-1] == QUEUES + 1
    assert max(after - before for before, after in pairwise(looked_at)) <= 512
    assert store.queues.dirty == []
    await store.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_flush_that_is_cancelled_is_made_up_for_when_the_store_closes(seed: int) -> None:
    disk = MemoryDisk(page_size=64)
    store = await opened(disk)
    for number in range(40):
        store.put(message("T", number % 4, b"%d" % number))
    store.settle()
    await store.flush()
    with trio.CancelScope() as scope:
        flush = store.queues.flush_of_dirty(0)
        list(flush.gather())
        scope.cancel()
        await trio.lowlevel.checkpoint()
        flush.run()
    assert scope.cancelled_caught
    await store.close()
    again = await opened(disk.crash(Random(seed)))
    assert not again.report.changed
    assert [again.queue_end("T", queue_id) for queue_id in range(4)] == [10] * 4
    for queue_id in range(4):
        assert len(again.get("T", queue_id, 0, 32).body()) > 0
    await again.close()


async def test_what_is_written_during_a_flush_stays_dirty() -> None:
    store = await opened(MemoryDisk(page_size=64))
    for topic in ("Again", "Gone", "T"):
        store.put(message(topic, 0, b"x"))
    store.settle()
    flush = store.queues.flush_of_dirty(0)
    list(flush.gather())
    store.put(message("Again", 0, b"y"))
    store.settle()
    store.drop_topic("Gone")
    flush.run()
    flush.done()
    assert [(queue.topic, queue.flushed, queue.end) for queue in store.queues.dirty] == [("Again", 1, 2)]
    await store.remove_dropped()
    await store.close()


async def test_deleted_queues_are_freed_by_the_thread_that_flushes_them(tmp_path: Path) -> None:
    config = small_config(store_path_root_dir=str(tmp_path))
    store = MessageStore(RealDisk(), config, lambda: 0, on_progress=lambda _: None)
    await store.open()
    for queue_id in range(20):
        store.put(message("Gone", queue_id, b"x"))
    store.settle()
    flush = store.queues.flush_of_dirty(0)
    list(flush.gather())
    store.drop_topic("Gone")
    await store.remove_dropped()
    gc.collect()
    mapped = RealRegion.mapped
    flush.run()
    assert RealRegion.mapped == mapped - 20  # not first by `done`, on the loop, or by who holds the queues
    flush.done()
    await store.close()


async def test_a_queue_that_is_set_back_during_a_flush_stays_dirty() -> None:
    store = await opened(MemoryDisk(page_size=64))
    for _ in range(10):
        store.put(message("T", 0, b"x"))
    store.settle()
    flush = store.queues.flush_of_dirty(0)
    list(flush.gather())
    queue = store.queue("T", 0)
    assert queue is not None
    queue.cut(4)
    for _ in range(8):
        store.put(message("T", 0, b"y"))
    store.settle()
    flush.run()
    flush.done()
    assert (queue.end, queue.is_dirty) == (12, True)
    assert queue.flushed <= 4
    await store.close()


class SlowDisk(MemoryDisk):
    """A flush that ends when it may, in a thread."""

    def __init__(self) -> None:
        super().__init__(page_size=64)
        self.may_end = threading.Event()
        self.running = self.most = 0

    def flush(self, file: _File, path: str) -> None:
        if self.inline:
            super().flush(file, path)
            return
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.may_end.wait(10)
        super().flush(file, path)
        self.running -= 1


async def test_flushes_of_the_log_do_not_overlap() -> None:
    """Of two at once the kernel tells one that a page was lost, and the other would count that page as flushed."""
    disk = SlowDisk()
    store = await opened(disk)
    disk.inline = False
    store.put(message("T", 0, b"first"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._log_flush.flush_once)
        await trio.testing.wait_all_tasks_blocked()
        store.put(message("T", 0, b"second"))
        nursery.start_soon(store._log_flush.flush_once)
        await trio.testing.wait_all_tasks_blocked()
        disk.may_end.set()
    assert disk.most == 1
    assert store.flushed.value == store.log.end
    disk.inline = True
    await store.close()
