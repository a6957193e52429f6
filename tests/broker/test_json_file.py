"""Tables on disk: complete after every crash, readable whatever the files hold."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.json_file import RETRY_SECONDS, JsonFile, NotSaved
from rocketlet.store.real_disk import RealDisk


class Table:
    def __init__(self, path: Path, disk: RealDisk | None = None) -> None:
        self.content: Any = {"n": 0}
        self.file = JsonFile(disk or RealDisk(), str(path), lambda: self.content)

    def put(self, n: int) -> None:
        self.content = {"n": n}
        self.file.changed()


class FailingDisk(RealDisk):
    """Refuses to write while `full`; counts its writes."""

    inline = True

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.writes = 0

    def write_file(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device", path)
        self.writes += 1
        super().write_file(path, data)


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert Table(tmp_path / "t.json").file.load() is None


async def test_saved_content_is_loaded(tmp_path: Path) -> None:
    table = Table(tmp_path / "config" / "t.json")
    table.put(5)
    assert table.file.dirty
    await table.file.saved()
    assert not table.file.dirty
    assert Table(tmp_path / "config" / "t.json").file.load() == {"n": 5}
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["t.json"]


async def test_the_backup_holds_the_previous_content(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    table = Table(path)
    for n in (1, 2, 3):
        table.put(n)
        await table.file.saved()
    assert json.loads(path.read_text()) == {"n": 3}
    assert json.loads((tmp_path / "t.json.bak").read_text()) == {"n": 2}


async def test_saving_without_a_change_writes_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.json")
    await table.file.saved()
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("broken", [b"", b"\0" * 4096, b"{", b'{"n":1}}', b"\xff\xfe", b"[1,", b"[1, 2]", b"3"])
def test_a_broken_file_falls_back_to_its_backup(
    tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(broken)
    (tmp_path / "t.json.bak").write_text('{"n":7}')
    with caplog.at_level(logging.WARNING):
        assert Table(path).file.load() == {"n": 7}
    assert "t.json" in caplog.text


async def test_a_broken_file_does_not_become_the_backup_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"{broken")
    (tmp_path / "t.json.bak").write_text('{"n":7}')
    table = Table(path)
    table.file.load()
    table.put(8)
    await table.file.saved()
    assert json.loads((tmp_path / "t.json.bak").read_text()) == {"n": 7}
    assert json.loads(path.read_text()) == {"n": 8}
    assert (tmp_path / "t.json.broken").read_bytes() == b"{broken"


def test_two_broken_files_give_an_empty_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.json").write_bytes(b"{broken")
    (tmp_path / "t.json.bak").write_bytes(b"}")
    assert Table(tmp_path / "t.json").file.load() is None
    assert "t.json.bak" in caplog.text


def test_reads_fastjson(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"offsetTable":{"t@g":{0:5,1:7\n}},}')
    assert Table(tmp_path / "t.json").file.load() == {"offsetTable": {"t@g": {"0": 5, "1": 7}}}


async def test_a_full_disk_is_reported_to_the_caller_and_keeps_the_old_file(tmp_path: Path) -> None:
    disk = FailingDisk()
    table = Table(tmp_path / "t.json", disk)
    table.put(1)
    await table.file.saved()
    disk.full = True
    table.put(2)
    with pytest.raises(NotSaved, match="No space left"):
        await table.file.saved()
    assert table.file.dirty
    assert Table(tmp_path / "t.json").file.load() == {"n": 1}
    disk.full = False
    await table.file.saved()
    assert Table(tmp_path / "t.json").file.load() == {"n": 2}


async def test_unawaited_changes_are_written_soon(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    disk = FailingDisk()
    table = Table(tmp_path / "t.json", disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.file.keep_saving)
        table.put(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not table.file.dirty
        disk.full = True
        table.put(2)
        await trio.testing.wait_all_tasks_blocked()
        assert table.file.dirty
        disk.full = False
        await trio.sleep(RETRY_SECONDS * 1.5)
        assert not table.file.dirty
        nursery.cancel_scope.cancel()


async def test_a_deleted_file_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(tmp_path / "config" / "t.json")
    table.file.look()
    assert not table.file.dirty, "it was never there"
    table.put(7)
    await table.file.saved()
    table.file.look()
    assert not table.file.dirty
    shutil.rmtree(tmp_path / "config")
    table.file.look()
    table.file.look()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "t.json was deleted while the broker runs" in caplog.text
    await table.file.saved()
    again = Table(tmp_path / "config" / "t.json")
    assert again.file.load() == {"n": 7}
    (tmp_path / "config" / "t.json").unlink()
    again.file.look()
    assert again.file.dirty


async def test_a_write_says_that_the_file_was_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With config/ removed, a topic created at once after it made the file anew, and no line told of the others."""
    table = Table(tmp_path / "config" / "t.json")
    table.put(7)
    await table.file.saved()
    shutil.rmtree(tmp_path / "config")
    table.put(8)
    await table.file.saved()
    table.file.look()
    assert ["t.json was deleted while the broker runs" in record.message for record in caplog.records] == [True]


async def test_concurrent_saves_share_a_write(tmp_path: Path) -> None:
    disk = FailingDisk()
    table = Table(tmp_path / "t.json", disk)
    async with trio.open_nursery() as nursery:
        for n in range(20):
            table.put(n)
            nursery.start_soon(table.file.saved)
    assert disk.writes == 1
    assert Table(tmp_path / "t.json").file.load() == {"n": 19}


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_file_content_is_handled(tmp_path_factory: pytest.TempPathFactory, main: bytes, backup: bytes) -> None:
    directory = tmp_path_factory.mktemp("tables")
    (directory / "t.json").write_bytes(main)
    (directory / "t.json.bak").write_bytes(backup)
    Table(directory / "t.json").file.load()
