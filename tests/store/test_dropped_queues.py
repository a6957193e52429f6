"""Deleting the files of dropped queues while queues of their names are made anew."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.store_model import small_config

WAIT_S = 60.0  # only a fault takes that long


class Slow(MemoryDisk):
    """Waits, in the thread that deletes a path that ends so, until `go_on`."""

    def __init__(self, slow: str) -> None:
        super().__init__(page_size=64)
        self._slow = slow
        self.begun, self.go_on = threading.Event(), threading.Event()

    def remove(self, path: str) -> None:
        self._wait(path)
        super().remove(path)

    def remove_directory(self, path: str) -> None:
        self._wait(path)
        super().remove_directory(path)

    def _wait(self, path: str) -> None:
        if path.endswith(self._slow) and not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(WAIT_S)


def dropped(disk: MemoryDisk, count: int = 1) -> ConsumeQueueTable:
    """A table whose topic Again was dropped with so many queues of one file each."""
    table = ConsumeQueueTable(disk, small_config())
    for queue_id in range(count):
        table.find_or_make("Again", queue_id).prepare(1)
    table.drop_topic("Again")
    return table


def folder_of(disk: MemoryDisk) -> set[str]:
    return {path.rpartition("consumequeue/")[2].rpartition("/")[0] for path in disk.files()}


@pytest.mark.parametrize("slow", ["00000", "/Again/0", "consumequeue/Again", "consumequeue_ext/Again"])
def test_a_queue_that_is_made_anew_while_its_old_files_are_deleted_keeps_its_own(slow: str) -> None:
    disk = Slow(slow)
    table = dropped(disk)
    assert table.dropped.take(10)
    deleting = threading.Thread(target=table.dropped.delete)
    deleting.start()
    assert disk.begun.wait(WAIT_S)
    order: list[str] = []
    real_wait = table.dropped._changed.wait_for

    def waiting(predicate: Callable[[], bool]) -> bool:
        order.append("ready" if predicate() else "busy")
        disk.go_on.set()
        return real_wait(predicate, WAIT_S)

    table.dropped._changed.wait_for = waiting  # type: ignore[method-assign, assignment]
    queue = table.find_or_make("Again", 0)
    queue.prepare(1)
    deleting.join(WAIT_S)
    assert order == ["busy"]
    assert folder_of(disk) == {"Again/0"}
    assert len(queue.files.files) == 1


def test_other_queues_do_not_wait_for_a_deletion() -> None:
    disk = Slow("/Again/1")
    table = dropped(disk, 2)
    assert table.dropped.take(10)
    deleting = threading.Thread(target=table.dropped.delete)
    deleting.start()
    assert disk.begun.wait(WAIT_S)
    table.find_or_make("Other", 1).prepare(1)
    table.find_or_make("Again", 0).prepare(1)  # whose old files still wait, and are deleted in place
    disk.go_on.set()
    deleting.join(WAIT_S)
    assert folder_of(disk) == {"Again/0", "Other/1"}
    assert not table.dropped.take(10)


def test_a_failed_deletion_leaves_the_others_to_the_next() -> None:
    class Refusing(MemoryDisk):
        def remove(self, path: str) -> None:
            if "/Again/1/" in path:
                raise PermissionError(path)
            super().remove(path)

    disk = Refusing(page_size=64)
    table = dropped(disk, 3)
    assert table.dropped.take(10)
    with pytest.raises(PermissionError):
        table.dropped.delete()
    table.dropped.delete()
    assert folder_of(disk) == {"Again/1"}
    assert not table.dropped.take(10)
