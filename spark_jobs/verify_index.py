"""Compares the index files on disk with the keys of the log, and their chains with their hashes.

First a task a file sees where in it the keys of each stretch of the log are. Then a task compares a stretch, and reads
that much: a full index file has 20 million keys.

Java: none
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import list_folder, read_range
from rocketlet.spark_jobs.log_pieces import ITEMS, PIECE_SCHEMA, Scanned
from rocketlet.spark_jobs.piece_groups import Piece, by_number, groups_of
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.verify_report import FINDING_SCHEMA, Finding, VerifyReport, finding_table, findings_of
from rocketlet.store.layout.file_names import INDEX, parse_index_name
from rocketlet.store.layout.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexGeometry,
    IndexHeader,
    decode_header,
    entry_dtype,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules

_KEYS_AT_ONCE = 2_000_000
_ENTRIES_AT_ONCE = 500_000

# What a task says of an index file: how many links are wrong, and where in it the keys of stretches are.
LOOKED_SCHEMA = "file int, links long, stretches array<int>, firsts array<long>, ends array<long>"


@dataclass(slots=True, frozen=True)
class Stretch:
    """A part of the log whose keys are looked for in one index file; offsets from `low` to before `high`."""

    file: int
    low: int
    high: int


@dataclass(slots=True, frozen=True)
class Place:
    """Entries of an index file, by their numbers: from `first` to before `end`."""

    file: int
    first: int
    end: int


def verify_index(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
    files = [entry for entry in list_folder(f"{root}/{INDEX}") if parse_index_name(entry.name) is not None]
    if not files:
        report.notes.append(f"no index files below {root}/{INDEX}: nothing to compare")
        return
    paths = [f"{root}/{INDEX}/{file.name}" for file in files]
    sizes = [file.size for file in files]
    log = (report.log_begin, report.last_known_offset)
    stretches = stretches_of([_header(path, rules.geometry) for path in paths], report.log_begin, report.log_end)
    spread = scanned.pieces.where(f"kind = '{ITEMS}'").mapInArrow(_spreader(stretches), PIECE_SCHEMA)
    present = [(ITEMS, 0, 0, "", 0, number, 0, 0, b"") for number in range(len(stretches))]
    items = spread.unionByName(session.createDataFrame(present, PIECE_SCHEMA))
    damages = [(damage.log_offset, damage.log_offset + damage.size) for damage in report.damages]
    numbers = session.range(0, len(files), 1, len(files))
    with progress(session, "verifying the index"):
        looked_up = numbers.mapInArrow(_looker(paths, stretches, rules.geometry), LOOKED_SCHEMA).collect()
        compare = _comparer(paths, stretches, _places_in(looked_up), rules.geometry, log, damages)
        rows = by_number(items, len(stretches)).mapInArrow(compare, FINDING_SCHEMA).collect()
    all_findings = [*findings_of(rows), *_of_files(looked_up, paths, sizes, rules.geometry)]
    report.findings += _by_file(sorted(all_findings, key=lambda finding: (finding.place, finding.what)))


def _places_in(looked_up: list[Any]) -> dict[int, list[Place]]:
    """Where the keys of each stretch are."""
    places: dict[int, list[Place]] = {}
    for row in sorted(looked_up, key=lambda row: int(row.file)):
        for stretch, first, end in zip(row.stretches, row.firsts, row.ends, strict=True):
            places.setdefault(stretch, []).append(Place(row.file, first, end))
    return places


def _of_files(looked_up: list[Any], paths: list[str], sizes: list[int], geometry: IndexGeometry) -> Iterator[Finding]:
    """What can be seen of each file alone."""
    for row in looked_up:
        if row.links:
            yield Finding(paths[row.file], "", "links of chains lead elsewhere", row.links)
        if (missing := geometry.file_size - sizes[row.file]) > 0:
            yield Finding(paths[row.file], "", "bytes are missing at the end of the file", missing)


def _by_file(findings: list[Finding]) -> list[Finding]:
    """One of each kind for a file, where there is one for each stretch."""
    sums: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        total = sums.setdefault((finding.place, finding.what), replace(finding, count=0))
        total.count += finding.count
    return list(sums.values())


def stretches_of(headers: list[IndexHeader], log_begin: int, log_end: int) -> list[Stretch]:
    """The stretch of each file, cut where it has many keys."""
    begins: list[int] = []
    end = 0
    for header in headers:
        # A header that was lost says nothing: then the file begins where the one before it ended.
        begins.append(header.begin_log_offset if header.begin_log_offset >= end else end)
        end = max(end, header.end_log_offset)
    stretches = []
    for number, (low, high) in enumerate(pairwise([-1, *begins[1:], 1 << 62])):
        first, last = max(low, begins[number], log_begin), min(high, log_end)
        parts = -(-headers[number].next_entry // _KEYS_AT_ONCE)
        cuts = [first + (last - first) * part // parts for part in range(1, parts)] if last > first else []
        stretches += [Stretch(number, *part) for part in pairwise([low, *cuts, high])]
    return stretches


def _spreader(stretches: list[Stretch]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Sends each piece to the stretches of the log in which it has keys."""
    lows = [stretch.low for stretch in stretches]

    def spread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        for batch in batches:
            rows, numbers = [], []
            for row, data in enumerate(batch.column("data").to_pylist()):
                offsets = np.frombuffer(data, INDEX_ITEM)["log_offset"]
                first = bisect_right(lows, int(offsets[0])) - 1
                for number in range(first, bisect_right(lows, int(offsets[-1]))):
                    rows.append(row)
                    numbers.append(number)
            rows_of_file = batch.take(pa.array(rows, pa.int64()))
            yield rows_of_file.set_column(batch.schema.get_field_index("file"), "file", pa.array(numbers, pa.int64()))

    return spread


def _comparer(
    paths: list[str],
    stretches: list[Stretch],
    places: dict[int, list[Place]],
    geometry: IndexGeometry,
    log: tuple[int, int],
    damages: list[tuple[int, int]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (number,), pieces in groups_of(batches, "file"):
            yield from compared(stretches[number], places.get(number, []), pieces).to_batches()

    def compared(stretch: Stretch, places: list[Place], pieces: Iterator[Piece]) -> pa.Table:
        import numpy as np

        from rocketlet.spark_jobs.comparisons import compare_index
        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        items = np.concatenate([np.frombuffer(data, INDEX_ITEM) for *_, data in pieces])
        entries = np.concatenate([
            np.empty(0, entry_dtype()),
            *(
                part[(part["log_offset"] >= stretch.low) & (part["log_offset"] < stretch.high)]
                for place in places
                for part in entries_of(paths[place.file], geometry, place.first, place.end)
            ),
        ])  # fmt: skip
        difference = compare_index(items, entries, log, (stretch.low, stretch.high), damages)
        counts = {
            "keys of the log are missing": difference.missing,
            "keys are of no message of the log": difference.surplus,
        }
        path = paths[stretch.file]
        rows = [
            {"place": path, "what": problem, "count": count, "first": -1} for problem, count in counts.items() if count
        ]
        return finding_table(rows)

    return compare


def _looker(
    paths: list[str], stretches: list[Stretch], geometry: IndexGeometry
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Follows the chains of each file, and sees where in it the keys of each stretch are."""

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from rocketlet.spark_jobs.comparisons import StretchPlaces, wrong_links

        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            path = paths[number]
            slots = np.frombuffer(_padded(path, HEADER_SIZE, geometry.slots * SLOT_SIZE), ">i4")
            places = StretchPlaces([stretch.low for stretch in stretches])
            links = wrong_links(places.noted(entries_of(path, geometry)), slots)
            # The keys of one message may stand at the end of one file and at the begin of the next.
            in_file = [place for place in places.found() if stretches[place[0]].file in (number, number + 1)]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([number], pa.int32()),
                    pa.array([links], pa.int64()),
                    pa.array([[stretch for stretch, _, _ in in_file]], pa.list_(pa.int32())),
                    pa.array([[first + 1 for _, first, _ in in_file]], pa.list_(pa.int64())),
                    pa.array([[end + 1 for _, _, end in in_file]], pa.list_(pa.int64())),
                ],
                ["file", "links", "stretches", "firsts", "ends"],
            )

    return look_up


def entries_of(path: str, geometry: IndexGeometry, first: int = 1, end: int | None = None) -> Iterator[Any]:
    """The entries of an index file from number `first` on to the header's last, or before `end`, in arrays."""
    import numpy as np

    end = _header(path, geometry).next_entry if end is None else end
    for number in range(first, end, _ENTRIES_AT_ONCE):
        count = min(end - number, _ENTRIES_AT_ONCE)
        yield np.frombuffer(_padded(path, geometry.entries_at + number * ENTRY_SIZE, count * ENTRY_SIZE), entry_dtype())


def _padded(path: str, start: int, size: int) -> bytes:
    """Of a file that is too short the rest as zeros."""
    return bytes(read_range(path, start, size)).ljust(size, b"\0")


def _header(path: str, geometry: IndexGeometry) -> IndexHeader:
    header = decode_header(_padded(path, 0, HEADER_SIZE))
    return header._replace(next_entry=min(header.next_entry, geometry.entries))
