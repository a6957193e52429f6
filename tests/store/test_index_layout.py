from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_numbers import index_key_hash
from rocketlet.store.layout.index_layout import (
    IndexColumns,
    IndexGeometry,
    IndexTable,
    chains,
    decode_header,
    seconds_since,
)

SMALL = IndexGeometry(100, 10)
FOREVER = (0, (1 << 63) - 1)


def table(geometry: IndexGeometry = SMALL) -> tuple[bytearray, IndexTable]:
    buffer = bytearray(geometry.file_size)
    return buffer, IndexTable(buffer, geometry)


def test_worked_example() -> None:
    # The real number of slots without 420 MB: a buffer of the first 20 MB of slots and a few entries.
    geometry = IndexGeometry(5_000_000, 20)
    assert IndexGeometry().file_size == 420_000_040
    buffer, index = table(geometry)
    for key, offset, timestamp in [
        ("7F0000010A1B18B4AAC20A1B2C3D0000", 1000, 1700000000123),
        ("order-1001", 1000, 1700000000123),
        ("user-7", 1000, 1700000000123),
        ("user-7", 2000, 1700000007999),
    ]:
        assert index.put(index_key_hash("TopicTest", key), offset, timestamp)
    index.write_header()
    assert buffer[:40].hex() == ("0000018bcfe5687b0000018bcfe5873f00000000000003e800000000000007d00000000300000005")
    assert buffer[20_000_040 : 20_000_040 + 100].hex() == "00" * 20 + (
        "62f5e4c000000000000003e80000000000000000" "3e37330100000000000003e80000000000000000"
        "75178cc900000000000003e80000000000000000" "75178cc900000000000007d00000000700000003"
    )  # fmt: skip
    assert [int.from_bytes(buffer[at : at + 4], "big") for at in (1128232, 15219756, 17910604)] == [1, 2, 4]
    assert index.query(index_key_hash("TopicTest", "user-7"), 32, *FOREVER) == [2000, 1000]
    assert index.query(index_key_hash("TopicTest", "user-7"), 1, *FOREVER) == [2000]
    assert index.query(index_key_hash("TopicTest", "user-7"), 32, 1700000000123, 1700000001000) == [1000]
    assert index.query(index_key_hash("TopicTest", "user-8"), 32, *FOREVER) == []


def test_a_file_after_another() -> None:
    buffer, index = table()
    index.follow(2000, 1700000007999)
    index.write_header()
    assert buffer[:32].hex() == "0000018bcfe5873f" * 2 + "00000000000007d0" * 2
    assert index.put(index_key_hash("a", "b"), 3000, 1700000010500)
    index.write_header()
    assert buffer[:40].hex() == "0000018bcfe59104" * 2 + "0000000000000bb8" * 2 + "0000000100000002"
    assert buffer[40 + 400 + 20 :][:20].hex() == "000170c00000000000000bb80000000200000000"


def test_capacity_is_one_less_than_the_entries() -> None:
    _, index = table()
    assert index.put_many([(n, 4000 + n, 1700000010500) for n in range(12)]) == 9
    assert index.is_full
    assert not index.put(1, 1, 1)


def test_a_new_file_is_empty() -> None:
    buffer, index = table()
    assert decode_header(buffer).next_entry == 1
    assert index.query(0, 32, *FOREVER) == []
    index.follow(0, 0)
    assert (index.begin_timestamp, index.begin_log_offset) == (0, 0)


def test_times_backwards_and_far_ahead_are_clamped() -> None:
    _, index = table()
    index.put(5, 1, 10_000)
    index.put(5, 2, 4_000)
    index.put(5, 3, 10_000 + (1 << 31) * 1000)
    assert [index.entry(n)[2] for n in (1, 2, 3)] == [0, 0, 0x7FFFFFFF]


def test_only_the_first_entrys_seconds_count_from_the_previous_file() -> None:
    times = np.array([5_000, 9_999, 2_000])
    assert seconds_since(times, 3_000).tolist() == [2, 6, 0]
    assert seconds_since(times, 3_000, 1_000).tolist() == [4, 6, 0]
    assert seconds_since(times, 3_000, 0).tolist() == [0, 6, 0], "there was no file before"
    assert seconds_since(times, 0).tolist() == [0, 0, 0]


def test_chains_lead_from_the_newest_entry_of_a_slot_to_the_oldest() -> None:
    heads, previous, slots_used = chains(np.array([3, 7, 11, 4]), 4)
    assert (heads.tolist(), previous.tolist(), slots_used) == ([4, 0, 0, 3], [0, 1, 2, 0], 2)


def test_a_chain_that_points_forward_ends_the_query() -> None:
    buffer, index = table()
    index.put(5, 1, 1000)
    index.put(105, 2, 1000)
    at = SMALL.entries_at + 20 + 16
    buffer[at : at + 4] = (2).to_bytes(4, "big")
    assert index.query(5, 32, *FOREVER) == [1]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60_000)), max_size=60))
def test_queries_find_what_was_added(puts: list[tuple[int, int]]) -> None:
    geometry = IndexGeometry(7, 100)
    buffer, index = table(geometry)
    now = 1_700_000_000_000
    expected: dict[int, list[int]] = {}
    for offset, (key_hash, pause) in enumerate(puts):
        now += pause
        assert index.put(key_hash, offset, now)
        expected.setdefault(key_hash, []).insert(0, offset)
    index.write_header()
    again = IndexTable(buffer, geometry)
    for key_hash in range(301):
        assert again.query(key_hash, 64, *FOREVER) == expected.get(key_hash, [])
    assert again.slots_used == len({key_hash % 7 for key_hash, _ in puts})


TIMES = st.integers(1699999990000, 1700009999999)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9999), TIMES), max_size=30), st.integers(0, 30), st.booleans()
)
def test_columns_write_the_same_as_single_keys(keys: list[tuple[int, int, int]], first: int, one_time: bool) -> None:
    geometry = IndexGeometry(11, 25)
    one_by_one, columns = table(geometry), table(geometry)
    if one_time:
        keys = [(key_hash, offset, 1700000010500) for key_hash, offset, _ in keys]
    for _, index in (one_by_one, columns):
        index.put_many(keys[:first])
    for key in keys[first:]:
        one_by_one[1].put(*key)
    hashes, offsets, times = np.array(keys[first:], np.int64).reshape(-1, 3).T
    fits = max(geometry.entries - columns[1].next_entry, 0)
    given_times = 1700000010500 if one_time else times
    assert columns[1].put_columns(IndexColumns(hashes, offsets, given_times)) == min(len(hashes), fits)
    for _, index in (one_by_one, columns):
        index.write_header()
    assert one_by_one[0] == columns[0]
