from __future__ import annotations

from datetime import datetime

from rocketlet.store.layout.file_names import (
    commit_log_path,
    index_name,
    offset_name,
    parse_index_name,
    parse_offset,
    queue_folder,
)


def test_offsets() -> None:
    assert offset_name(0) == "0" * 20
    assert offset_name(1 << 30) == "00000000001073741824"
    assert parse_offset("00000000001073741824") == 1 << 30
    for foreign in ("", "0", ".DS_Store", "0000000000107374182x", "0" * 21, "٠" * 20, "-0000000000000000001"):
        assert parse_offset(foreign) is None


def test_paths() -> None:
    assert commit_log_path(65536) == "commitlog/00000000000000065536"
    assert queue_folder("TopicTest", 3) == "consumequeue/TopicTest/3"


def test_index_names_are_local_time() -> None:
    now = int(datetime(2026, 11, 18, 12, 52, 0).timestamp()) * 1000 + 710
    assert index_name(now) == "20261118125200710"
    assert parse_index_name("20261118125200710") == 20261118125200710
    assert parse_index_name("x") is None
