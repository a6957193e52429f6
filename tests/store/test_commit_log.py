from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message_record import MAGIC_V1, MAGIC_V2, Fault, check, decode, encode, record_size, topic_field
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.errors import DiskFull, MessageIllegal
from rocketlet.store.layout.log_scan import is_blank_of
from rocketlet.store.memory_disk import MemoryDisk

V4 = bytes((10, 0, 0, 5, 0, 0, 0x2A, 0x9F))
V6 = bytes.fromhex("20010db8000000000000000000000001") + bytes((0, 0, 0x2A, 0x9F))


def log_of(size: int = 1024, **disk: int) -> CommitLog:
    return CommitLog(MemoryDisk(page_size=64, **disk), "/store/commitlog", size)


def append(log: CommitLog, body: bytes, topic: str = "T", host: bytes = V4, properties: bytes = b"a\x01b") -> int:
    field = topic_field(topic)
    size = record_size(len(body), field, len(properties), 2 * len(host))
    return log.append(size, 3, 7, 5, 0, 11, host, 12, host, 1, 9, body, field, properties)


def test_a_record_is_written_as_by_the_codec() -> None:
    log = log_of()
    at = append(log, b"hello")
    raw = log.read(at, log.end)
    assert raw is not None
    record = decode(raw)
    assert bytes(raw) == encode(record)
    assert (record.topic, record.body, record.queue_id, record.queue_offset) == ("T", b"hello", 3, 5)
    assert (record.flag, record.born_timestamp, record.store_timestamp, record.magic) == (7, 11, 12, MAGIC_V1)
    assert check(raw, 0, len(raw), True, 0) == len(raw)


def test_ipv6_hosts_and_long_topics() -> None:
    log = log_of()
    append(log, b"six", host=V6)
    at = append(log, b"long", topic="%RETRY%" + "g" * 130)
    view = log.read(at, log.end - at)
    assert view is not None
    assert decode(view).magic == MAGIC_V2
    first = log.read(0, at)
    assert first is not None
    assert (decode(first).born_host, decode(first).sys_flag) == (V6, 0x30)


@given(st.integers(93, 1200), st.integers(0, 900))
def test_the_rule_for_the_end_of_a_file(size: int, before: int) -> None:
    """A record fits a file if 8 bytes stay free after it; otherwise a blank record closes the file."""
    log = log_of(1024)
    if before >= 93 and before + 8 <= 1024:
        append(log, b"x" * (before - 92), properties=b"")
    begin, body = log.end, b"y" * (size - 92)
    if size + 8 > 1024:
        with pytest.raises(MessageIllegal, match="mappedFileSizeCommitLog"):
            append(log, body, properties=b"")
        assert log.end == begin
        return
    at = append(log, body, properties=b"")
    if begin + size + 8 <= 1024:
        assert at == begin
        assert len(log.files.files) == 1
    else:
        assert at == 1024
        assert is_blank_of(log.files.files[0].buffer, begin, 1024)
    assert log.end == at + size


def test_reading_stays_inside_what_is_written() -> None:
    log = log_of()
    append(log, b"hello")
    end = log.end
    assert log.read(0, end) is not None
    assert log.read(0, end + 1) is None
    assert log.read(-1, 1) is None
    assert log.read(0, -1) is None
    assert log.read(5000, 1) is None
    append(log, b"x" * 900)
    assert log.read(end, 1024) is None  # a record never crosses a file


def test_a_reader_keeps_the_bytes_of_a_deleted_file() -> None:
    log = log_of()
    append(log, b"kept by a slow reader")
    view = log.read(0, log.end)
    append(log, b"x" * 900)
    log.files.drop_first()
    gc.collect()
    assert view is not None
    assert decode(view).body == b"kept by a slow reader"
    assert view.readonly
    assert log.begin == 1024
    assert log.read(0, 10) is None


def test_a_full_disk_changes_nothing() -> None:
    log = log_of(1024, capacity=512)
    append(log, b"x" * 300)
    end = log.end
    with pytest.raises(DiskFull, match="no space left"):
        append(log, b"y" * 400)
    assert log.end == end
    append(log, b"z" * 10)  # what is there still fits


def test_a_full_disk_at_the_end_of_a_file_changes_nothing() -> None:
    log = log_of(1024, capacity=1024)
    append(log, b"x" * 800)
    end = log.end
    for _ in range(2):
        with pytest.raises(DiskFull):
            append(log, b"y" * 400)
    assert log.end == end
    assert check(log.files.files[0].buffer, end, 1024) is Fault.EMPTY


def test_views_of_the_files_as_arrays() -> None:
    log = log_of()
    append(log, b"x" * 800)
    append(log, b"y" * 300)
    first, second = log.to_numpy()
    assert (len(first), len(second)) == (1024, log.end - 1024)
    assert not first.flags.writeable
    assert int(first[8:88].sum()) > 0
    assert [begin for begin, _ in log.file_views()] == [0, 1024]
    assert repr(log) == f"<CommitLog 0 to {log.end}, 2 files>"
