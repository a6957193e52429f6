"""Index files built and compared in pieces: whatever the pieces, the result equals that of the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.spark_jobs.comparisons import StretchPlaces, compare_index, wrong_links
from rocketlet.spark_jobs.index_segments import INDEX_ITEM, IndexFile
from rocketlet.spark_jobs.segment_rows import Array
from rocketlet.spark_jobs.verify_index import Stretch, stretches_of
from rocketlet.store.layout.index_layout import HEADER_SIZE, IndexGeometry, IndexHeader, IndexTable, entry_dtype

GEOMETRY = IndexGeometry(7, 60)
KEYS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 5_000)), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=6)


def items_of(keys: list[tuple[int, int, int]]) -> Array:
    """Keys with log offsets and times that go up."""
    items = np.empty(len(keys), INDEX_ITEM)
    hashes, steps, pauses = np.array(keys, np.int64).reshape(-1, 3).T
    items["hash"], items["log_offset"], items["timestamp"] = hashes, np.cumsum(steps), 10_000 + np.cumsum(pauses)
    return items


def file_of(parts: list[Array], *, follows: bool) -> bytes:
    made = bytearray(GEOMETRY.file_size)
    for place, data in IndexFile(GEOMETRY).pieces(parts, follows=follows):
        made[place : place + len(data)] = data
    return bytes(made)


@given(KEYS, CUTS)
def test_a_file_built_in_pieces_equals_a_brokers(keys: list[tuple[int, int, int]], cuts: list[int]) -> None:
    items = items_of(keys)
    buffer = bytearray(GEOMETRY.file_size)
    table = IndexTable(buffer, GEOMETRY)
    for item in items.tolist():
        table.put(*item)
    table.write_header()
    assert file_of(np.split(items, sorted(cuts)), follows=False) == bytes(buffer)


@given(KEYS.filter(bool), CUTS)
def test_the_first_time_is_relative_to_the_previous_file(keys: list[tuple[int, int, int]], cuts: list[int]) -> None:
    items = items_of([(0, 0, 0), *keys])
    buffer = bytearray(GEOMETRY.file_size)
    table = IndexTable(buffer, GEOMETRY)
    table.follow(0, int(items["timestamp"][0]))
    for item in items[1:].tolist():
        table.put(*item)
    table.write_header()
    assert file_of(np.split(items, sorted(cuts)), follows=True) == bytes(buffer)


def entries_in(file: bytes, count: int) -> Array:
    return np.frombuffer(file, entry_dtype(), count, GEOMETRY.entries_at + 20).copy()


@given(KEYS.filter(bool), CUTS, st.data())
def test_a_wrong_link_is_found_in_any_part(
    keys: list[tuple[int, int, int]], cuts: list[int], data: st.DataObject
) -> None:
    file = file_of([items_of(keys)], follows=False)
    entries, slots = entries_in(file, len(keys)), np.frombuffer(file, ">i4", GEOMETRY.slots, HEADER_SIZE)
    assert wrong_links(np.split(entries, sorted(cuts)), slots) == 0
    entries["previous"][data.draw(st.integers(0, len(keys) - 1))] += 1
    assert wrong_links(np.split(entries, sorted(cuts)), slots) == 1


@given(KEYS, KEYS, st.tuples(st.integers(-1, 400), st.integers(0, 400)))
def test_keys_are_compared_as_sets(
    log: list[tuple[int, int, int]], index: list[tuple[int, int, int]], border: tuple[int, int]
) -> None:
    wanted, present = items_of(log), items_of(index)[::-1]

    def keys_of(items: Array) -> set[tuple[int, int]]:
        return {(one, at) for one, at, _ in items.tolist() if border[0] <= at < border[1]}

    found = compare_index(wanted, present, (0, 1 << 62), border)
    assert found.missing == len(keys_of(wanted) - keys_of(present))
    assert found.surplus == len(keys_of(present) - keys_of(wanted))
    assert not compare_index(wanted, wanted, (0, 1 << 62), border)


def test_a_file_with_many_keys_is_compared_in_stretches() -> None:
    def header(begin: int, end: int, entries: int) -> IndexHeader:
        return IndexHeader(0, 0, begin, end, 0, entries)

    few, many, lost = header(100, 900, 1000), header(1000, 8900, 5_000_000), header(0, 0, 1)
    assert stretches_of([few, many, lost], 0, 9500) == [
        Stretch(0, -1, 1000),
        Stretch(1, 1000, 3633),
        Stretch(1, 3633, 6266),
        Stretch(1, 6266, 8900),
        Stretch(2, 8900, 1 << 62),
    ]


@given(st.lists(st.integers(-5, 100), max_size=60), st.lists(st.integers(0, 90), unique=True, max_size=5), CUTS)
def test_no_entry_of_a_stretch_is_outside_its_place(offsets: list[int], cuts: list[int], parts: list[int]) -> None:
    begins = [-1, *sorted(cuts)]
    entries = np.zeros(len(offsets), entry_dtype())
    entries["log_offset"] = offsets
    places = StretchPlaces(begins)
    assert np.concatenate(list(places.noted(np.split(entries, sorted(parts))))).tolist() == entries.tolist()
    of_stretches: dict[int, list[int]] = {}
    for number, offset in enumerate(offsets):
        if offset >= -1:
            of_stretches.setdefault(sum(begin <= offset for begin in begins) - 1, []).append(number)
    assert places.found() == [
        (stretch, min(numbers), max(numbers) + 1) for stretch, numbers in sorted(of_stretches.items())
    ]
