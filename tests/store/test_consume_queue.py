from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_ext import ConsumeQueueExt
from rocketlet.store.layout.consume_queue_entry import PRE_BLANK
from rocketlet.store.layout.queue_ext_layout import END_MARK, is_address, to_offset
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.watermark import Watermark

FILE = 100  # five entries


def queue_of(file_size: int = FILE) -> ConsumeQueue:
    return ConsumeQueue(MemoryDisk(page_size=64), "/store/consumequeue/T/0", "T", 0, file_size)


def filled(count: int, first: int = 0, *, step: int = 100) -> ConsumeQueue:
    """A queue whose message of offset q is at log offset q * step."""
    queue = queue_of()
    for offset in range(first, first + count):
        queue.write(offset, offset * step, 50, offset)
    queue.next_offset = queue.flushed = queue.end
    return queue


def test_entries_across_files() -> None:
    queue = filled(12)
    assert [file.begin for file in queue.files.files] == [0, 100, 200]
    assert [queue.entry(offset) for offset in (0, 4, 5, 11)] == [
        (0, 50, 0), (400, 50, 4), (500, 50, 5), (1100, 50, 11),
    ]  # fmt: skip
    assert queue.entry(12) is None
    assert queue.entry(-1) is None
    assert len(queue.entries(3, 100)) == 2 * 20  # to the end of that file
    assert len(queue.entries(10, 100)) == 2 * 20
    assert len(queue.entries(12, 100)) == 0
    assert queue.next_file_offset(3) == 5
    assert queue.next_file_offset(5) == 10
    assert queue.log_end() == 1150
    assert repr(queue) == "<ConsumeQueue T:0 0 to 12, next 12>"


def test_a_gap_is_refused() -> None:
    queue = filled(3)
    with pytest.raises(AssertionError, match="gap"):
        queue.write(queue.end + 5, 1, 1, 1)


def test_a_first_entry_in_the_middle_is_pre_blanked() -> None:
    queue = filled(4, first=13)
    assert (queue.begin, queue.end) == (13, 17)
    first = queue.files.files[0]
    assert first.begin == 200
    assert bytes(first.buffer[:60]) == PRE_BLANK * 3
    assert queue.entry(13) == (1300, 50, 13)
    queue.correct_begin(0)
    assert queue.begin == 13  # Java finds a pre-blank entry here
    assert queue.to_numpy()["log_offset"].tolist() == [1300, 1400, 1500, 1600]


def test_a_first_entry_at_the_beginning_of_a_file_needs_none() -> None:
    queue = filled(2, first=10)
    assert (queue.begin, queue.end, queue.files.begin) == (10, 12, 200)


@given(st.integers(0, 30), st.integers(0, 4000))
def test_begin_is_the_first_message_still_in_the_log(count: int, log_begin: int) -> None:
    queue = filled(count)
    queue.correct_begin(log_begin)
    assert queue.begin == min(-(-log_begin // 100), count)


def test_files_are_deleted_with_their_messages() -> None:
    queue = filled(12)
    assert queue.drop_before(900, 10_000) == 1  # offset 9, the last of the second file, is at 900
    assert (queue.files.begin, queue.begin) == (100, 9)
    assert queue.drop_before(950, 10_000) == 1
    assert queue.drop_before(10_000, 10_000) == 0  # never the last
    assert (queue.begin, queue.end, queue.next_offset) == (12, 12, 12)
    assert queue.log_end() == 0


def test_the_last_file_that_a_crash_cannot_empty_is_kept() -> None:
    queue = filled(12)
    assert queue.drop_before(10_000, 500) == 0
    assert queue.drop_before(10_000, 501) == 1  # the second file's first message is at 500
    assert queue.drop_before(10_000, 1000) == 0
    assert queue.drop_before(10_000, 1001) == 1


def test_truncating_leaves_zeros() -> None:
    queue = filled(12)
    queue.cut(7)
    assert (queue.end, queue.next_offset, len(queue.files.files)) == (7, 7, 2)
    assert not any(queue.files.files[1].buffer[40:])
    queue.write(7, 7777, 50, 1)
    assert queue.entry(7) == (7777, 50, 1)
    queue.cut(0)
    assert queue.files.files == []


def test_search_by_time() -> None:
    queue = filled(10)
    times = [0, 10, 10, 10, 20, 30, 30, 40, 50, 60]
    find = [queue.search_time(at, lambda offset: times[offset // 100]) for at in (-5, 0, 5, 10, 11, 30, 60, 61)]
    assert find == [0, 0, 1, 1, 4, 5, 9, 10]
    queue.begin = 4
    assert queue.search_time(0, lambda offset: times[offset // 100]) == 4


def test_the_array_is_a_view_of_one_file_and_read_only() -> None:
    queue = filled(4)
    array = queue.to_numpy()
    assert array.dtype.names == ("log_offset", "size", "tags_code")
    assert array.base is not None
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array["size"][0] = 1
    queue.files.drop_first()
    assert array["log_offset"].tolist() == [0, 100, 200, 300]
    assert filled(12).to_numpy()["tags_code"].tolist() == list(range(12))
    assert len(queue_of().to_numpy()) == 0


def test_entries_pointing_into_a_range_of_the_log() -> None:
    assert filled(12).pointing_into(350, 650) == [(4, 400, 50), (5, 500, 50), (6, 600, 50)]
    assert filled(3, first=12).pointing_into(0, 1) == []


def test_watching_a_queue() -> None:
    queue = filled(3)
    mark = queue.watch()
    assert isinstance(mark, Watermark)
    assert mark.value == 3
    assert queue.watch() is mark


class TestExtension:
    def ext_of(self) -> ConsumeQueueExt:
        return ConsumeQueueExt(MemoryDisk(page_size=64), "/store/consumequeue_ext/T/0", 100)

    def test_units_across_files_with_their_end_marks(self) -> None:
        ext = self.ext_of()
        addresses = [ext.append(code, 1000 + code, b"\x01\x02") for code in range(7)]
        assert all(is_address(address) for address in addresses)
        assert [to_offset(address) for address in addresses] == [0, 22, 44, 66, 100, 122, 144]
        assert bytes(ext.files.files[0].buffer[88:90]) == END_MARK
        for code, address in enumerate(addresses):
            unit = ext.read(address)
            assert unit is not None
            assert (unit.tags_code, unit.store_timestamp, unit.bit_map) == (code, 1000 + code, b"\x01\x02")
        assert repr(ext) == "<ConsumeQueueExt /store/consumequeue_ext/T/0 to 166>"

    def test_truncating_and_appending_again(self) -> None:
        ext = self.ext_of()
        addresses = [ext.append(code, 0, b"") for code in range(6)]
        ext.cut(to_offset(addresses[1]) + 20)
        assert ext.read(addresses[1]) is not None
        assert ext.read(addresses[2]) is None
        assert ext.append(9, 0, b"\xff") == addresses[2]

    def test_old_files_are_deleted(self) -> None:
        ext = self.ext_of()
        addresses = [ext.append(code, 0, b"\0" * 50) for code in range(4)]
        ext.drop_before(to_offset(addresses[2]))
        assert ext.files.begin == 200
        assert ext.read(addresses[0]) is None
        assert ext.read(addresses[3]) is not None
