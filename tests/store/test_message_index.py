from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_numbers import index_key_hash
from rocketlet.store.index_file import IndexItem
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.rebuild_index import IndexRebuild
from tests.support.store_model import small_config


def index_of(disk: MemoryDisk | None = None) -> MessageIndex:
    return MessageIndex(disk or MemoryDisk(page_size=64), small_config())


def put(index: MessageIndex, items: list[IndexItem]) -> None:
    while items:
        items = items[index.put_some(items) :]


def item(key: str, offset: int, time: int = 1_700_000_000_000) -> IndexItem:
    return index_key_hash("T", key), offset, time


def test_keys_are_found_across_files_newest_first() -> None:
    index = index_of()
    put(index, [item("a" if number % 3 else "b", number * 100, 1_700_000_000_000 + number) for number in range(40)])
    assert [file.count for file in index.files] == [11, 11, 11, 7]
    found = index.find("T", "b", 100, 0, 1 << 62)
    assert found == [number * 100 for number in range(39, -1, -1) if number % 3 == 0]
    assert index.find("T", "b", 3, 0, 1 << 62) == found[:3]
    assert index.find("T", "nothing", 100, 0, 1 << 62) == []
    assert index.find("Other", "b", 100, 0, 1 << 62) == []
    statistics = index.statistics()
    assert (statistics.files, statistics.entries, statistics.end_log_offset) == (4, 40, 3900)


def test_queries_by_time_are_exact_to_the_second() -> None:
    index = index_of()
    start = 1_700_000_000_000
    put(index, [item("a", number, start + number * 10_000) for number in range(30)])
    assert index.find("T", "a", 100, start + 100_000, start + 120_000) == [12, 11, 10]
    assert index.find("T", "a", 100, start + 10**9, start + 2 * 10**9) == []


def test_file_names_stay_in_order_when_the_clock_goes_back() -> None:
    index = index_of()
    put(index, [item("a", 1, 1_700_000_000_000)] * 11)
    put(index, [item("a", 2, 1_600_000_000_000)] * 11)
    put(index, [item("a", 3, 1_600_000_000_000)])
    names = [file.file.begin for file in index.files]
    assert names == sorted(set(names))
    assert names[1] == names[0] + 1


def test_old_files_are_deleted_except_the_last() -> None:
    index = index_of()
    put(index, [item("a", number) for number in range(25)])
    assert index.drop_before(15) == 1
    assert [file.table.end_log_offset for file in index.files] == [21, 24]
    assert index.drop_before(1000) == 1
    assert index.drop_before(1000) == 0


def test_a_file_that_somebody_else_deleted_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(page_size=64)
    index = index_of(disk)
    put(index, [item("a", number) for number in range(25)])
    index.drop_before(15)
    disk.remove(index.files[-1].file.path)
    index.flush_of_dirty()()
    put(index, [item("a", 26)])
    index.flush_of_dirty()()
    [message] = caplog.messages
    assert f"{index.files[-1].file.path} was deleted while the broker runs" in message


def test_a_full_disk_indexes_nothing() -> None:
    index = index_of(MemoryDisk(page_size=64, capacity=64 * 4))
    with pytest.raises(OSError, match="No space"):
        put(index, [item(f"k{number}", number) for number in range(200)])
    before = index.statistics().entries
    with pytest.raises(OSError):
        index.put_some([item("more", 1000)] * 5)
    assert index.statistics().entries == before


def test_a_file_is_flushed_once() -> None:
    disk = MemoryDisk(page_size=64)
    index = index_of(disk)
    put(index, [item("a", number) for number in range(25)])
    index.flush_of_dirty()()
    assert disk.flushes == 3
    index.flush_of_dirty()()
    assert disk.flushes == 3
    put(index, [item("a", 100)])
    index.flush_of_dirty()()
    assert disk.flushes == 4


def test_a_flush_that_was_given_up_is_made_up_for() -> None:
    disk = MemoryDisk(page_size=64)
    index = index_of(disk)
    put(index, [item("a", number) for number in range(25)])
    index.flush_of_dirty()
    index.flush_of_dirty()()
    assert disk.flushes == 3
    assert len(disk.crash(Random(0)).files()) == len(disk.crash(Random(1)).files()) == 3


KEYS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5000)), min_size=1, max_size=60)


@given(KEYS, st.data())
def test_a_truncated_file_equals_one_without_the_rest(keys: list[tuple[str, int]], data: st.DataObject) -> None:
    items = [item(key, number, 1_700_000_000_000 + step) for number, (key, step) in enumerate(keys[:11])]
    keep = data.draw(st.integers(1, len(items)))
    whole, part = index_of(), index_of()
    put(whole, items)
    put(part, items[:keep])
    whole.files[0].cut(keep + 1, items[keep - 1][2])
    assert bytes(whole.files[0].file.buffer) == bytes(part.files[0].file.buffer)


@given(KEYS, st.data())
def test_broken_chains_are_rebuilt(keys: list[tuple[str, int]], data: st.DataObject) -> None:
    index = index_of()
    put(index, [item(key, number) for number, (key, _) in enumerate(keys[:11])])
    file = index.files[0]
    before = bytes(file.file.buffer)
    assert file.rechain(repair=False) == 0
    at = data.draw(st.integers(0, 6))
    file.file.buffer[40 + 4 * at : 44 + 4 * at] = data.draw(st.integers(0, 50)).to_bytes(4, "big")
    is_changed = bytes(file.file.buffer) != before
    assert bool(file.rechain(repair=False)) is is_changed
    file.rechain(repair=True)
    assert bytes(file.file.buffer) == before


def test_a_torn_header_is_recovered() -> None:
    disk = MemoryDisk(page_size=64)
    put(index_of(disk), [item("a", number) for number in range(5)])
    path = next(path for path in disk.files() if "/index/" in path)
    torn = bytearray(disk.files()[path])
    torn[36:40] = b"\x7f\xff\xff\xff"
    disk.put_file(path, bytes(torn))
    index = index_of(disk)
    assert index.load(repair=False) == []
    assert index.files[0].count == 11


def test_a_file_that_counts_no_entry_is_dropped_wherever_it_stands() -> None:
    """A crash took its header: entries and slots that the header does not count would be found by a later start."""
    disk = MemoryDisk(page_size=64)
    index = index_of(disk)
    put(index, [item("a", number * 100) for number in range(25)])
    first = index.files[0].file.path
    disk.put_file(first, bytes(40) + disk.files()[first][40:])
    again = index_of(disk)
    again.load(repair=True)
    assert [file.count for file in again.files] == [0, 11, 3]
    assert IndexRebuild(again, 0, repair=True).finish().surplus == 14
    assert [again.files, [path for path in disk.files() if "/index/" in path]] == [[], []]
