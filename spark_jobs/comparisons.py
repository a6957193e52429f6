"""Comparing a store's queues and index with its log: pure, on arrays.

Not every difference is an error. There may be entries of messages that retention deleted, before the log's begin, and
of messages that arrived meanwhile, after its end; a queue entry may hold the address of an extension unit instead of
its tags code; the last message before a restart may be in the index twice; and where the log is damaged, queues and
index may know more than it does.

Java: none (a broker never compares)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rocketlet.spark_jobs.segment_rows import Array
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, LOST, are_past, entries_of
from rocketlet.store.layout.index_layout import link
from rocketlet.store.layout.queue_ext_layout import is_address


@dataclass(slots=True)
class QueueDifference:
    """Entries of one queue file that are missing, are other ones, or should not be there; and the first such offset."""

    missing: int = 0
    other: int = 0
    surplus: int = 0
    first: int = -1

    def __bool__(self) -> bool:
        return bool(self.missing or self.other or self.surplus)

    def note(self, offsets: Array) -> int:
        if len(offsets) and (self.first < 0 or offsets[0] < self.first):
            self.first = int(offsets[0])
        return len(offsets)


def compare_queue_file(
    expected: bytes,
    place: int,
    present: bytes | bytearray,
    number: int,
    per_file: int,
    log: tuple[int, int],
    tags_code_of: Callable[[int], int | None],
) -> QueueDifference:
    """`expected` are the entries from the `place`-th of the file on; `log` is the stretch of the log that was read."""
    difference = QueueDifference()
    expected_entries = entries_of(expected)
    present_entries = entries_of(bytes(present).ljust(per_file * ENTRY_SIZE, b"\0"))
    base = number * per_file
    end = place + len(expected_entries)
    compared = present_entries[place:end]
    is_lost = expected_entries["tags_code"] == LOST
    empty = compared["size"] == 0
    is_same = (compared["log_offset"] == expected_entries["log_offset"]) & (
        compared["size"] == expected_entries["size"]
    )
    codes = compared["tags_code"].astype(np.int64)
    for index in np.flatnonzero(is_same & (codes != expected_entries["tags_code"])).tolist():
        code = int(codes[index])
        is_same[index] = is_address(code) and tags_code_of(code) == int(expected_entries["tags_code"][index])
    difference.missing = difference.note(np.flatnonzero(empty) + base + place)
    difference.other = difference.note(np.flatnonzero(~is_same & ~empty & ~is_lost) + base + place)
    outside_indexes = np.concatenate((np.arange(place), np.arange(end, per_file)))
    others = present_entries[outside_indexes]
    is_past = are_past(present_entries.tobytes(), log[0])[outside_indexes]
    is_zero = (others["log_offset"] == 0) & (others["size"] == 0) & (others["tags_code"] == 0)
    is_new = (others["log_offset"] >= log[1]) & (others["size"] > 0)
    before = outside_indexes < place
    allowed = np.where(before, is_past, is_zero | is_new | is_past)
    difference.surplus = difference.note(outside_indexes[~allowed] + base)
    return difference


@dataclass(slots=True)
class IndexDifference:
    """Keys of one index file that are missing or should not be there, and links of its chains that are wrong."""

    missing: int = 0
    surplus: int = 0
    links: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.links)


def compare_index(
    items: Array,
    entries: Array,
    log: tuple[int, int],
    border: tuple[int, int],
    damages: Sequence[tuple[int, int]] = (),
) -> IndexDifference:
    """Keys expected with a log offset inside `border` [from, to) against those of a file, both by hash and offset."""
    low, high = max(border[0], log[0]), min(border[1], log[1])
    for begin, end in damages:
        entries = entries[(entries["log_offset"] < begin) | (entries["log_offset"] >= end)]
    expected, present = _keys(items, low, high), _keys(entries, low, high)
    if all(np.array_equal(expected_column, other) for expected_column, other in zip(expected, present, strict=True)):
        return IndexDifference()  # so it is where all is well, and nothing needs to be sorted
    expected, present = _distinct(*expected), _distinct(*present)
    hashes, offsets = (np.concatenate(columns) for columns in zip(expected, present, strict=True))
    order = np.lexsort((hashes, offsets))
    is_same = _is_as_before(hashes[order], offsets[order])  # each is there twice at most: once here, once there
    alone = order[~is_same & ~np.append(is_same[1:], False)]
    missing = int((alone < len(expected[0])).sum())
    return IndexDifference(missing, len(alone) - missing)


def _keys(table: Array, low: int, high: int) -> tuple[Array, Array]:
    """(hashes, offsets) of a stretch of the log."""
    rows = np.flatnonzero((table["log_offset"] >= low) & (table["log_offset"] < high))
    return table["hash"][rows].astype(np.int32), table["log_offset"][rows].astype(np.int64)


def _distinct(hashes: Array, offsets: Array) -> tuple[Array, Array]:
    order = np.lexsort((hashes, offsets))
    hashes, offsets = hashes[order], offsets[order]
    is_new = ~_is_as_before(hashes, offsets)
    return hashes[is_new], offsets[is_new]


def _is_as_before(hashes: Array, offsets: Array) -> Array:
    """Of sorted keys, whether each is the same as the one before."""
    same = np.zeros(len(hashes), bool)
    same[1:] = (np.diff(offsets) == 0) & (np.diff(hashes) == 0)
    return same


def wrong_links(parts: Iterable[Array], slots: Array) -> int:
    """How many slots of an index file, and previous entries of its entries, do not lead where the hashes say."""
    heads = np.zeros(len(slots), ">i4")
    count = wrong = 0
    for entries in parts:
        previous, _ = link(heads, entries["hash"], count + 1)
        wrong += int((entries["previous"] != previous).sum())
        count += len(entries)
    return wrong + int((slots != heads).sum())


class StretchPlaces:
    """Where in an index file the entries of each stretch of the log are. A stretch ends where the next begins."""

    def __init__(self, begins: Sequence[int]) -> None:
        self._begins = np.array(begins, np.int64)
        self._firsts = np.full(len(begins), np.iinfo(np.int64).max)
        self._ends = np.zeros(len(begins), np.int64)
        self._count = 0

    def noted(self, parts: Iterable[Array]) -> Iterator[Array]:
        """The same parts, one after another."""
        for entries in parts:
            stretches = np.searchsorted(self._begins, entries["log_offset"].astype(np.int64), "right") - 1
            firsts = np.flatnonzero(np.diff(stretches, prepend=-2))  # of runs in the same stretch
            ends = np.append(firsts[1:], len(entries))
            known_firsts = np.flatnonzero(stretches[firsts] >= 0)
            numbers = stretches[firsts[known_firsts]]
            np.minimum.at(self._firsts, numbers, firsts[known_firsts] + self._count)
            np.maximum.at(self._ends, numbers, ends[known_firsts] + self._count)
            self._count += len(entries)
            yield entries

    def found(self) -> list[tuple[int, int, int]]:
        """(stretch, first, end) of those that have entries: these are from the `first`-th to before the `end`-th, and
        in a sound file no others stand between them."""
        return [
            (stretch, int(self._firsts[stretch]), int(self._ends[stretch]))
            for stretch in np.flatnonzero(self._ends).tolist()
        ]
