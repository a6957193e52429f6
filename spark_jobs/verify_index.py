"""Compares the index files on disk with the keys of the log, and their chains with their hashes.

A task compares a stretch of the log, and reads files a part at a time: a full index file has 20 million keys.

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


@dataclass(slots=True, frozen=True)
class Stretch:
    """A part of the log whose keys are looked for in one index file; offsets from `low` to before `high`."""

    file: int
    low: int
    high: int


def verify_index(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
    files = [entry for entry in list_folder(f"{root}/{INDEX}") if parse_index_name(entry.name) is not None]
    if not files:
        report.notes.append(f"no index files below {root}/{INDEX}: nothing to compare")
        return
    paths = [f"{root}/{INDEX}/{file.name}" for file in files]
    log = (report.log_begin, report.last_known_offset)
    stretches = stretches_of([_header(path, rules.geometry) for path in paths], report.log_begin, report.log_end)
    spread = scanned.pieces.where(f"kind = '{ITEMS}'").mapInArrow(_spreader(stretches), PIECE_SCHEMA)
    present = [(ITEMS, 0, 0, "", 0, number, 0, 0, b"") for number in range(len(stretches))]
    items = spread.unionByName(session.createDataFrame(present, PIECE_SCHEMA))
    damages = [(one.log_offset, one.log_offset + one.size) for one in report.damages]
    compare = _comparer(paths, stretches, rules.geometry, log, damages)
    sizes = [(path, file.size) for path, file in zip(paths, files, strict=True)]
    numbers = session.range(0, len(files), 1, len(files))
    with progress(session, "verifying the index"):
        rows = by_number(items, len(stretches)).mapInArrow(compare, FINDING_SCHEMA).collect()
        rows += numbers.mapInArrow(_checker(sizes, rules.geometry), FINDING_SCHEMA).collect()
    report.findings += _by_file(findings_of(rows))


def _by_file(findings: list[Finding]) -> list[Finding]:
    """One of each kind for a file, where there is one for each stretch."""
    sums: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        known = sums.setdefault((finding.place, finding.what), replace(finding, count=0))
        known.count += finding.count
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
            taken = batch.take(pa.array(rows, pa.int64()))
            yield taken.set_column(batch.schema.get_field_index("file"), "file", pa.array(numbers, pa.int64()))

    return spread


def _comparer(
    paths: list[str],
    stretches: list[Stretch],
    geometry: IndexGeometry,
    log: tuple[int, int],
    damages: list[tuple[int, int]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (number,), pieces in groups_of(batches, "file"):
            yield from compared(stretches[number], pieces).to_batches()

    def compared(stretch: Stretch, pieces: Iterator[Piece]) -> pa.Table:
        import numpy as np

        from rocketlet.spark_jobs.comparisons import compare_index
        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        items = np.concatenate([np.frombuffer(data, INDEX_ITEM) for *_, data in pieces])
        # The keys of one message may stand at the end of one file and at the begin of the next.
        entries = np.concatenate([
            part[(part["log_offset"] >= stretch.low) & (part["log_offset"] < stretch.high)]
            for path in paths[max(stretch.file - 1, 0) : stretch.file + 1]
            for part in entries_of(path, geometry)
        ])  # fmt: skip
        found = compare_index(items, entries, log, (stretch.low, stretch.high), damages)
        counts = {"keys of the log are missing": found.missing, "keys are of no message of the log": found.surplus}
        return _finding_table(paths[stretch.file], counts)

    return compare


def _checker(files: list[tuple[str, int]], geometry: IndexGeometry) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Looks at what can be seen of each (path, size) alone."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        from rocketlet.spark_jobs.comparisons import wrong_links

        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            path, size = files[number]
            slots = np.frombuffer(_padded(path, HEADER_SIZE, geometry.slots * SLOT_SIZE), ">i4")
            links = wrong_links(entries_of(path, geometry), slots)
            missing = max(geometry.file_size - size, 0)
            counts = {"links of chains lead elsewhere": links, "bytes are missing at the end of the file": missing}
            yield from _finding_table(path, counts).to_batches()

    return check


def _finding_table(path: str, counts: dict[str, int]) -> pa.Table:
    return finding_table([
        {"place": path, "what": what, "count": count, "first": -1} for what, count in counts.items() if count
    ])  # fmt: skip


def entries_of(path: str, geometry: IndexGeometry, at_once: int = 500_000) -> Iterator[Any]:
    """The entries of an index file from the first to the header's last, in arrays of so many."""
    import numpy as np

    end = _header(path, geometry).next_entry
    yield np.empty(0, entry_dtype())
    for first in range(1, end, at_once):
        count = min(end - first, at_once)
        yield np.frombuffer(_padded(path, geometry.entries_at + first * ENTRY_SIZE, count * ENTRY_SIZE), entry_dtype())


def _padded(path: str, start: int, size: int) -> bytes:
    """Of a file that is too short the rest as zeros."""
    return bytes(read_range(path, start, size)).ljust(size, b"\0")


def _header(path: str, geometry: IndexGeometry) -> IndexHeader:
    header = decode_header(_padded(path, 0, HEADER_SIZE))
    return header._replace(next_entry=min(header.next_entry, geometry.entries))
