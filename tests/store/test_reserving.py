"""Reserving changes no byte, in small or large files, whether the range is known to be zeros or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.store.disk import PAGE, RealDisk


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
