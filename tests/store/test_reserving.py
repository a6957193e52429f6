"""Reserving changes no byte, in small or large files, whether the range is known to be zeros or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.store.disk import PAGE
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.real_disk import RealDisk
from tests.support.store_model import StoreModel, message, small_config


@pytest.mark.parametrize("size", [100_000, 20 << 20])
def test_reserving_keeps_what_is_there(tmp_path: Path, size: int) -> None:
    disk = RealDisk()
    region = disk.create(str(tmp_path / "folder" / "file"), size)
    region.reserve(0, 10)
    region.buffer[:10] = b"0123456789"
    region.reserve_zeros(10, 5 * PAGE)
    region.buffer[10:20] = b"abcdefghij"
    region.reserve(0, 6 * PAGE)
    region.reserve_zeros(20, 3 * PAGE)
    region.buffer[5 * PAGE - 1] = 7
    again = disk.open(region.path)
    assert bytes(again.buffer[:20]) == b"0123456789abcdefghij"
    assert bytes(again.buffer[20 : 6 * PAGE]).count(0) == 6 * PAGE - 21
    assert again.buffer[5 * PAGE - 1] == 7


def test_reserving_stays_inside_the_file(tmp_path: Path) -> None:
    region = RealDisk().create(str(tmp_path / "file"), 5000)
    region.reserve_zeros(4097, 9000)
    region.reserve_zeros(5000, 5000)
    assert Path(region.path).stat().st_size == 5000


def test_reserving_a_missing_file(tmp_path: Path) -> None:
    disk = RealDisk()
    region = disk.create(str(tmp_path / "file"), 5 * PAGE)
    disk.remove(region.path)
    region.reserve_zeros(0, 2 * PAGE)
    region.buffer[PAGE] = 1


def log_file(disk: MemoryDisk) -> MappedFile:
    return MappedFile(disk, "/log", 0, 4 << 20, disk.create("/log", 4 << 20))


def test_room_is_made_ahead_of_a_writer_until_there_is_enough() -> None:
    file = log_file(MemoryDisk())
    ready, rounds = file.make_room(0, 100, zeros=True), 0
    while (more := file.make_room_ahead(100, ready)) > ready:
        ready, rounds = more, rounds + 1
    assert rounds > 1, "it takes all at once"
    assert 512 << 10 <= ready - 100 < 1 << 20


def test_a_writer_whose_room_is_unknown_gets_none_ahead() -> None:
    """What it has written stands there, and must not become zeros."""
    file = log_file(MemoryDisk())
    file.make_room(0, 5000, zeros=True)
    file.buffer[:5000] = b"x" * 5000
    assert file.make_room_ahead(5000, 0) == 0
    assert bytes(file.buffer[:5000]) == b"x" * 5000


def test_a_full_disk_is_told_when_the_room_is_needed() -> None:
    disk = MemoryDisk(capacity=200_000)
    file = log_file(disk)
    ready = file.make_room(0, 100_000, zeros=True)
    assert file.make_room_ahead(90_000, ready) == ready
    with pytest.raises(OSError, match="space"):
        file.make_room(ready, ready + 200_000, zeros=True)


def test_a_log_with_room_ahead_takes_messages_over_the_ends_of_files() -> None:
    model = StoreModel(small_config())
    for number in range(60):
        model.put(message("T", 0, b"x" * (number * 7 % 50)))
        model.store.settle()
        model.store.log.make_room_ahead()
    model.verify()
