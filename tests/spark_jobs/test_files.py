"""File access: ranges, sparse files, and a lock held by another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocketlet.spark_jobs.files import (
    exists,
    is_locked,
    list_folder,
    read_file,
    read_range,
    rename,
    write_file,
    write_text,
)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_reading(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "b").write_bytes(b"0123456789")
    (tmp_path / "a").mkdir()
    root = f"{scheme}{tmp_path}"
    assert [(entry.name, entry.is_folder) for entry in list_folder(root)] == [("a", True), ("b", False)]
    assert list_folder(root)[1].size == 10
    assert bytes(read_range(f"{root}/b", 3, 4)) == b"3456"
    assert bytes(read_range(f"{root}/b", 8, 100)) == b"89"
    assert bytes(read_range(f"{root}/b", 50, 1)) == b""
    assert read_file(f"{root}/b") == b"0123456789"
    assert read_file(f"{root}/missing") is None
    assert list_folder(f"{root}/missing") == []
    write_text(f"{root}/text", "ü")
    assert (tmp_path / "text").read_text("utf-8") == "ü"


def test_writing_leaves_holes(tmp_path: Path) -> None:
    path = str(tmp_path / "new/file")
    write_file(path, 50 << 20, [(0, b"head"), (40 << 20, b"x" * 5000)])
    assert (tmp_path / "new/file").stat().st_size == 50 << 20
    assert (tmp_path / "new/file").stat().st_blocks * 512 < 1 << 20
    assert bytes(read_range(path, 40 << 20, 5001)) == b"x" * 5000 + b"\0"
    rename(path, str(tmp_path / "other/name"))
    assert exists(str(tmp_path / "other/name"))
    assert not exists(path)


@pytest.mark.process
def test_another_processs_lock_is_seen_and_not_taken(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_locked(str(lock))
    lock.write_bytes(b"lock")
    assert not is_locked(str(lock))
    program = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_EX, 1)\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(str(lock))
    assert not is_locked(str(lock))
