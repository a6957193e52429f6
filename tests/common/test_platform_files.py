"""What other systems lack, as far as Linux can show it: functions are removed, and a fake replaces msvcrt."""

from __future__ import annotations

import mmap
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketlet.common import platform_files
from rocketlet.store.disk import PAGE
from rocketlet.store.errors import StoreLocked
from rocketlet.store.real_disk import RealDisk

fcntl = pytest.importorskip("fcntl", reason="Windows has no fcntl")

MISSING_ON = {
    "macOS": ["fdatasync", "posix_fallocate"],
    "Windows": ["fdatasync", "posix_fallocate", "pread", "pwrite", "preadv", "statvfs", "SEEK_DATA", "fchmod"],
}


class Calls(list[str]):
    """The calls, in order."""


@pytest.fixture(params=["macOS", "Windows"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """This process as on that system; flushes and locks are recorded."""
    calls = Calls()
    for name in MISSING_ON[request.param]:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr("rocketlet.store.real_region._can_populate", False)
    monkeypatch.setattr("rocketlet.store.real_region._IS_LINUX", False)
    monkeypatch.setattr("rocketlet.store.real_disk._syncfs_tells", False)
    monkeypatch.setattr("rocketlet.store.real_region._NOWAIT", 0)
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync") or fsync(descriptor))
    if request.param == "macOS":

        def full_sync(descriptor: int, command: int) -> int:
            assert command == 51
            calls.append("F_FULLFSYNC")
            fsync(descriptor)
            return 0

        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", full_sync)
    else:
        monkeypatch.setattr(platform_files, "_IS_WINDOWS", True)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=40, free=50))
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "resource", None)

        def locking(descriptor: int, mode: int, size: int) -> None:
            assert (mode, size, os.lseek(descriptor, 0, os.SEEK_CUR)) == (2, 1, 0)
            calls.append("locking")

        monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    return calls


def test_a_file_is_created_written_flushed_and_read(calls: Calls, tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "log" / "0")
    region = disk.create(path, 4 * PAGE)
    region.reserve(100, 2 * PAGE + 1)
    region.reserve_zeros(0, 4 * PAGE)
    region.buffer[PAGE : PAGE + 5] = b"hello"
    region.flush((0, 4 * PAGE))
    assert calls[-1] in ("F_FULLFSYNC", "fsync")
    assert Path(path).read_bytes()[PAGE : PAGE + 5] == b"hello"
    assert region.read(PAGE, 5) == region.read_now(PAGE, 5) == b"hello"
    begin, end = region.next_data(0) or (-1, -1)
    assert begin <= PAGE < PAGE + 5 <= end
    disk.sync_directory(str(tmp_path / "log"))
    disk.write_file(str(tmp_path / "small"), b"text")
    assert disk.read_file(str(tmp_path / "small")) == b"text"
    usage = disk.usage(path)
    assert usage.free >= 0
    assert 0 <= usage.ratio <= 1
    assert disk.memory() > 1 << 20


def test_allocating_keeps_what_is_there(calls: Calls, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    with path.open("rb+") as file:
        platform_files.allocate(file.fileno(), 0, 5000)
    assert path.read_bytes() == b"x" * 5000


def test_a_store_can_be_locked_only_once(calls: Calls, tmp_path: Path) -> None:
    disk = RealDisk()
    lock = disk.lock(str(tmp_path / "lock"))
    with pytest.raises(StoreLocked):
        disk.lock(str(tmp_path / "lock"))
    lock.release()
    disk.lock(str(tmp_path / "lock")).release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_file_windows_will_not_delete_is_deleted_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform_files, "_IS_WINDOWS", True)
    held, free = tmp_path / "held", tmp_path / "free"
    held.touch()
    free.touch()
    unlink = os.unlink

    def refusing(path: str) -> None:
        if path == str(held):
            raise PermissionError(13, "it is mapped", path)
        unlink(path)

    files = platform_files.Deleted()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing)
        files.delete(str(held))
    assert held.exists()
    files.delete(str(free))
    assert not held.exists()
    assert not free.exists()


def test_on_other_platforms_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: str) -> None:
        raise PermissionError(13, "no", path)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(PermissionError):
        platform_files.Deleted().delete("file")


def test_without_fdatasync_a_mapping_is_flushed_before_its_file(calls: Calls, tmp_path: Path) -> None:
    class Mapping:
        def flush(self) -> None:
            calls.append("mapping")

    platform_files.flush_mapping(Mapping())
    with (tmp_path / "file").open("wb") as file:
        platform_files.flush(file.fileno())
    assert calls in (["mapping", "F_FULLFSYNC"], ["mapping", "fsync"])


def test_with_fdatasync_a_mapping_needs_nothing_else(tmp_path: Path) -> None:
    class Mapping:
        def flush(self) -> None:
            raise AssertionError("fdatasync flushes it")

    platform_files.flush_mapping(Mapping())
    assert mmap.PAGESIZE % platform_files.PAGE == 0


@pytest.mark.parametrize(
    ("groups", "limits", "found"),
    [
        ("0::/a/b", {"a/b/memory.max": "1000", "a/memory.max": "700"}, [1000, 700]),
        ("0::/", {"memory.max": "500"}, [500]),
        ("0::/a", {"a/memory.max": "max"}, []),
        ("0::/gone", {}, []),
        ("5:cpu:/x\n4:memory:/x", {"memory/x/memory.limit_in_bytes": "300", "cpu/x/memory.max": "1"}, [300]),
    ],
)
def test_control_group_limits(groups: str, limits: dict[str, str], found: list[int], tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups + "\n")
    for name, text in limits.items():
        path = tmp_path / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert platform_files.group_limits(f"{tmp_path}/") == found
