"""Real files and the disk in memory give the same guarantees; then those of only one of them."""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from rocketlet.store import real_region
from rocketlet.store.disk import PAGE, Disk, Entry, Usage
from rocketlet.store.dry_disk import DryDisk
from rocketlet.store.errors import StoreLocked
from rocketlet.store.memory_disk import MemoryDisk, PowerCut
from rocketlet.store.real_disk import RealDisk

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["real", "memory", "dry"])
def disk(request: pytest.FixtureRequest) -> Disk:
    disks: dict[str, Callable[[], Disk]] = {
        "real": RealDisk, "memory": MemoryDisk, "dry": lambda: DryDisk(RealDisk()),
    }  # fmt: skip
    return disks[request.param]()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


class TestEveryDisk:
    def test_a_file_is_created_at_its_length_and_found_again(self, disk: Disk, root: str) -> None:
        region = disk.create(f"{root}/a/b/file", 3 * PAGE)
        assert len(region.buffer) == region.size == 3 * PAGE
        region.reserve(10, 20)
        region.buffer[10:15] = b"hello"
        region.flush()
        disk.sync_directory(f"{root}/a/b")
        again = disk.open(f"{root}/a/b/file")
        assert bytes(again.buffer[8:17]) == b"\0\0hello\0\0"
        assert again.read(10, 5) == b"hello"
        assert again.read_now(10, 5) == b"hello"
        assert again.read(3 * PAGE - 2, 10) == b"\0\0"
        assert [entry.name for entry in disk.entries(f"{root}/a/b")] == ["file"]
        assert [(entry.name, entry.is_directory) for entry in disk.entries(f"{root}/a")] == [("b", True)]
        with pytest.raises(FileExistsError):
            disk.create(f"{root}/a/b/file", PAGE)

    def test_missing_files(self, disk: Disk, root: str) -> None:
        assert disk.entries(f"{root}/nowhere") == []
        assert not disk.exists(f"{root}/nowhere")
        assert disk.read_file(f"{root}/nowhere") is None
        disk.remove(f"{root}/nowhere")
        disk.remove_directory(f"{root}/nowhere")
        with pytest.raises(FileNotFoundError):
            disk.open(f"{root}/nowhere")

    def test_a_slice_outlives_its_file(self, disk: Disk, root: str) -> None:
        region = disk.create(f"{root}/x/file", PAGE)
        region.reserve(0, PAGE)
        region.buffer[:4] = b"kept"
        view = region.buffer[:4].toreadonly()
        disk.remove(f"{root}/x/file")
        del region
        gc.collect()
        disk.create(f"{root}/x/file", PAGE)
        assert bytes(view) == b"kept"

    def test_small_files_are_replaced_atomically(self, disk: Disk, root: str) -> None:
        disk.write_file(f"{root}/config/table.json", b"one")
        disk.write_file(f"{root}/config/table.json", b"another")
        assert disk.read_file(f"{root}/config/table.json") == b"another"
        assert [entry.name for entry in disk.entries(f"{root}/config")] == ["table.json"]
        disk.rename(f"{root}/config/table.json", f"{root}/config/table.json.bak")
        assert disk.read_file(f"{root}/config/table.json") is None
        assert disk.read_file(f"{root}/config/table.json.bak") == b"another"

    def test_the_beginning_of_a_file_is_read(self, disk: Disk, root: str) -> None:
        disk.write_file(f"{root}/file", b"123456")
        assert disk.read_file(f"{root}/file", 4) == b"1234"
        assert disk.read_file(f"{root}/file", 7) == b"123456"
        assert disk.read_file(f"{root}/other", 4) is None

    def test_a_short_file_is_extended(self, disk: Disk, root: str) -> None:
        disk.write_file(f"{root}/x/short", b"abc")
        disk.extend(f"{root}/x/short", PAGE)
        region = disk.open(f"{root}/x/short")
        assert region.size == PAGE
        assert bytes(region.buffer[:5]) == b"abc\0\0"
        disk.extend(f"{root}/x/short", 10)
        assert disk.open(f"{root}/x/short").size == PAGE

    def test_flushed_pages_stay_readable_and_writable(self, disk: Disk, root: str) -> None:
        region = disk.create(f"{root}/x/file", 16 * PAGE)
        region.reserve(0, region.size)
        data = Random(1).randbytes(region.size)
        region.buffer[:] = data
        held = region.buffer[5 * PAGE : 6 * PAGE].toreadonly()
        region.flush((5, 9 * PAGE + 5), (10 * PAGE, region.size), (0, 0))
        assert bytes(region.buffer) == data
        region.buffer[5 * PAGE : 5 * PAGE + 4] = b"more"
        assert bytes(held) == b"more" + data[5 * PAGE + 4 : 6 * PAGE]
        assert region.read(5 * PAGE, 6) == b"more" + data[5 * PAGE + 4 : 5 * PAGE + 6]

    def test_holes_are_distinguished_from_data(self, disk: Disk, root: str) -> None:
        region = disk.create(f"{root}/x/file", 64 * PAGE)
        assert region.next_data(0) is None
        region.reserve(40 * PAGE, 40 * PAGE + 1)
        region.buffer[40 * PAGE] = 1
        region.flush()
        found = region.next_data(0)
        assert found is not None
        assert 0 < found[0] <= 40 * PAGE < found[1]
        found = region.next_data(40 * PAGE + 7)
        assert found is not None
        assert found[0] == 40 * PAGE + 7
        assert region.next_data(60 * PAGE) is None

    def test_what_is_prefetched_reads_as_before(self, disk: Disk, root: str) -> None:
        data = Random(1).randbytes(16 * PAGE)
        disk.write_file(f"{root}/x/file", data)
        for region in (disk.open(f"{root}/x/file"), disk.open_private(f"{root}/x/file", 16 * PAGE)):
            for begin, end in ((0, 16 * PAGE), (PAGE + 7, PAGE + 8), (7, 7)):
                region.prefetch(begin, end)
            assert bytes(region.buffer) == data

    def test_a_private_mapping_changes_nothing(self, disk: Disk, root: str) -> None:
        disk.write_file(f"{root}/x/file", b"there".ljust(PAGE, b"\0"))
        private = disk.open_private(f"{root}/x/file", PAGE)
        private.reserve(0, 5)
        private.buffer[:5] = b"other"
        private.flush()
        assert private.read(0, 5) == b"other"
        assert disk.read_file(f"{root}/x/file") == b"there".ljust(PAGE, b"\0")

    def test_a_directory_has_one_lock(self, disk: Disk, root: str) -> None:
        lock = disk.lock(f"{root}/lock")
        with pytest.raises(StoreLocked):
            disk.lock(f"{root}/lock")
        lock.release()
        disk.lock(f"{root}/lock").release()
        assert disk.read_file(f"{root}/lock") == b"lock"

    def test_usage(self, disk: Disk, root: str) -> None:
        usage = disk.usage(f"{root}/not/made/yet")
        assert 0 <= usage.free <= usage.total - usage.reserved <= usage.total
        assert 0 <= usage.ratio <= 1
        assert disk.memory() > 0


class TestRealDisk:
    def test_small_files_leave_mappings_for_threads_and_the_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gc.collect()
        most = real_region.RealRegion.mapped + 2
        monkeypatch.setattr(real_region, "_most_small_files", lambda: most)
        disk, path = RealDisk(), str(tmp_path / "queue")
        regions = [disk.create(f"{path}{number}", PAGE) for number in range(2)]
        for open_one in (lambda: disk.create(f"{path}2", PAGE), lambda: disk.open(f"{path}0")):
            with pytest.raises(OSError, match="queue") as refused:
                open_one()
            assert refused.value.errno == errno.ENOMEM
        assert not disk.exists(f"{path}2")
        regions.append(disk.create(str(tmp_path / "log"), 32 << 20))
        regions.clear()
        regions.append(disk.open(f"{path}0"))

    def test_what_is_no_plain_file_is_not_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")  # to read it would wait for a writer
        (tmp_path / "device").symlink_to("/dev/zero")  # ... and this one would fill the memory
        (tmp_path / "folder").mkdir()
        (tmp_path / "loop").symlink_to("loop")
        for name in ("pipe", "device", "folder", "loop"):
            with pytest.raises(OSError, match=name):
                RealDisk().read_file(str(tmp_path / name))

    def test_a_link_that_leads_nowhere_hides_no_other_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to("nowhere")
        (tmp_path / "b").write_bytes(b"12")
        (tmp_path / "c").symlink_to("c")
        assert RealDisk().entries(str(tmp_path)) == [Entry("b", 2, is_directory=False)]

    def test_roots_reserve_is_neither_used_nor_usable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=30, free=60))
        usage = RealDisk().usage("/")
        assert usage == Usage(total=100, free=60, reserved=10)
        assert usage.ratio == pytest.approx(30 / 90)

    def test_many_files_can_be_open(self) -> None:
        RealDisk()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard

    def test_files_stay_sparse(self, tmp_path: Path) -> None:
        region = RealDisk().create(str(tmp_path / "large"), 1 << 30)
        region.reserve(0, 100)
        region.buffer[0] = 1
        region.flush()
        assert os.stat(tmp_path / "large").st_blocks * 512 < 1 << 20

    def test_all_files_of_a_locked_directory_open_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = RealDisk()
        assert not disk.sync_all(str(tmp_path))
        lock = disk.lock(str(tmp_path / "lock"))
        assert disk.sync_all(str(tmp_path)) is (sys.platform == "linux")
        monkeypatch.setattr("rocketlet.store.real_disk._syncfs_tells", False)
        assert not disk.sync_all(str(tmp_path))
        lock.release()
        assert not disk.sync_all(str(tmp_path))

    def test_a_deleted_file_can_still_be_read(self, tmp_path: Path) -> None:
        disk = RealDisk()
        region = disk.create(str(tmp_path / "file"), PAGE)
        region.reserve(0, 4)
        region.buffer[:4] = b"here"
        disk.remove(str(tmp_path / "file"))
        assert region.read(0, 4) == b"here"
        region.flush()

    def test_a_full_disk_is_an_error_not_a_signal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        region = RealDisk().create(str(tmp_path / "file"), PAGE)

        class Full:
            def madvise(self, *_: int) -> None:
                raise OSError(errno.EFAULT, "Bad address")

        monkeypatch.setattr("rocketlet.store.real_region._can_populate", True)
        region._map = Full()  # type: ignore[assignment]
        with pytest.raises(OSError) as caught:
            region.reserve(0, 1)
        assert caught.value.errno == errno.ENOSPC

    def test_allocation_without_the_newer_call(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rocketlet.store.real_region._can_populate", False)
        region = RealDisk().create(str(tmp_path / "file"), 16 * PAGE)
        region.reserve(0, 3 * PAGE)
        assert os.stat(tmp_path / "file").st_blocks * 512 >= 3 * PAGE

    @pytest.mark.process
    def test_another_process_holds_the_lock(self, tmp_path: Path) -> None:
        script = (
            "import sys; from rocketlet.store.real_disk import RealDisk; lock = RealDisk().lock(sys.argv[1]);"
            " print('held', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(StoreLocked, match="another process"):
                RealDisk().lock(str(tmp_path / "lock"))
            other.communicate(b"")
        RealDisk().lock(str(tmp_path / "lock")).release()


class TestMemoryDisk:
    def test_a_crash_keeps_any_subset_of_dirty_pages(self) -> None:
        seen = set()
        for seed in range(200):
            disk = MemoryDisk(page_size=16)
            region = disk.create("d/file", 64)
            region.reserve(0, 64)
            region.buffer[:] = b"a" * 64
            region.flush()
            disk.sync_directory("d")
            region.buffer[:32] = b"b" * 32
            after = disk.crash(Random(seed)).files()["d/file"]
            seen.add(after[:32:16])
            assert after[32:] == b"a" * 32
        assert seen == {b"aa", b"ab", b"ba", b"bb"}

    def test_an_unsynced_name_may_be_lost_or_come_back(self) -> None:
        made, removed = set(), set()
        for seed in range(50):
            disk = MemoryDisk()
            disk.put_file("d/old", b"old")
            disk.create("d/new", 10)
            disk.remove("d/old")
            after = disk.crash(Random(seed)).files()
            made.add("d/new" in after)
            removed.add("d/old" in after)
        assert made == removed == {True, False}

    def test_synced_data_survives(self) -> None:
        for seed in range(20):
            disk = MemoryDisk()
            disk.put_file("d/old", b"old")
            disk.create("d/new", 10).flush()
            disk.remove("d/old")
            disk.sync_directory("d")
            assert set(disk.crash(Random(seed)).files()) == {"d/new"}

    def test_a_replaced_file_is_the_old_or_the_new_one(self) -> None:
        seen = set()
        for seed in range(100):
            disk = MemoryDisk()
            disk.put_file("d/file", b"old")
            disk.power_cut_in = seed % 4
            try:
                disk.write_file("d/file", b"the new")
            except PowerCut:
                pass
            seen.add(disk.crash(Random(seed)).read_file("d/file"))
        assert seen == {b"old", b"the new"}

    def test_a_failed_flush_makes_pages_look_clean(self) -> None:
        disk = MemoryDisk()
        region = disk.create("d/file", 100)
        disk.sync_directory("d")
        region.reserve(0, 100)
        region.buffer[:4] = b"lost"
        disk.fail_next_flush = True
        with pytest.raises(OSError, match="Input/output"):
            region.flush()
        region.flush()  # reports success, and writes nothing
        assert {disk.crash(Random(seed)).files()["d/file"][:4] for seed in range(40)} == {b"lost", b"\0\0\0\0"}

    def test_writing_without_allocation_is_detected(self) -> None:
        region = MemoryDisk().create("d/file", 100)
        region.buffer[0] = 1
        with pytest.raises(AssertionError, match="without reserve"):
            region.flush()

    def test_a_full_disk(self) -> None:
        disk = MemoryDisk(page_size=64, capacity=128)
        region = disk.create("d/file", 1000)
        region.reserve(0, 128)
        region.reserve(0, 128)
        with pytest.raises(OSError) as caught:
            region.reserve(128, 129)
        assert caught.value.errno == errno.ENOSPC
        assert disk.usage("d") == Usage(128, 0)
        disk.remove("d/file")
        disk.create("d/other", 1000).reserve(500, 501)

    def test_a_rename_that_fails(self) -> None:
        disk = MemoryDisk()
        disk.put_file("d/file", b"old")
        disk.fail_next_rename = True
        with pytest.raises(OSError):
            disk.write_file("d/file", b"new")
        assert disk.read_file("d/file") == b"old"
        disk.write_file("d/file", b"new")
        assert disk.read_file("d/file") == b"new"

    def test_a_killed_processs_writes_survive(self) -> None:
        disk = MemoryDisk()
        region = disk.create("d/file", 10)
        region.reserve(0, 1)
        region.buffer[0] = 7
        after = disk.copy()
        region.buffer[0] = 9
        assert after.files()["d/file"][0] == 7

    def test_statistics(self) -> None:
        disk = MemoryDisk(page_size=16)
        disk.create("d/file", 100).reserve(0, 20)
        disk.open("d/file").flush()
        assert (disk.statistics().files, disk.statistics().flushes, disk.statistics().reserved_bytes) == (1, 1, 32)


class TestDryDisk:
    def test_the_disk_below_is_untouched(self) -> None:
        below = MemoryDisk()
        below.put_file("d/kept", b"x" * 10)
        below.put_file("d/removed", b"y" * 10)
        before = below.files()
        dry = DryDisk(below)
        region = dry.open("d/kept")
        region.reserve(0, 10)
        region.buffer[:] = b"z" * 10
        dry.remove("d/removed")
        dry.create("d/made", 5)
        dry.extend("d/kept", 20)
        dry.write_file("d/small", b"text")
        assert [entry.name for entry in dry.entries("d")] == ["kept", "made", "small"]
        assert not dry.exists("d/removed")
        assert dry.read_file("d/small") == b"text"
        assert below.files() == before
        assert dry.changes == {"d/removed", "d/made", "d/kept", "d/small"}

    def test_a_file_created_in_place_of_a_removed_one_is_empty(self) -> None:
        below = MemoryDisk()
        below.put_file("d/file", b"x" * 10)
        dry = DryDisk(below)
        dry.remove("d/file")
        assert bytes(dry.create("d/file", 10).buffer) == bytes(10)
        assert bytes(dry.open("d/file").buffer) == bytes(10)
