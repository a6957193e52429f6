"""Compares the index files on disk with the keys of the log, and their chains with their hashes.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import list_folder, read_range
from rocketlet.spark_jobs.log_pieces import ITEMS, PIECE_SCHEMA, Scanned
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.verify_report import FINDING_SCHEMA, VerifyReport, finding_table, findings_of
from rocketlet.spark_jobs.written_files import joined
from rocketlet.store.layout.file_names import INDEX, parse_index_name
from rocketlet.store.layout.index_layout import HEADER_SIZE, decode_header

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules


def verify_index(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
    names = [entry.name for entry in list_folder(f"{root}/{INDEX}") if parse_index_name(entry.name) is not None]
    if not names:
        report.notes.append(f"no index files below {root}/{INDEX}: nothing to compare")
        return
    begins: list[int] = []
    end = 0
    for name in names:
        header = decode_header(bytes(read_range(f"{root}/{INDEX}/{name}", 0, HEADER_SIZE)).ljust(HEADER_SIZE, b"\0"))
        # A header that was lost says nothing: then the file begins where the one before it ended.
        begins.append(header.begin_log_offset if header.begin_log_offset >= end else end)
        end = max(end, header.end_log_offset)
    borders = [-1, *begins[1:], 1 << 62]
    spread = scanned.pieces.where(f"kind = '{ITEMS}'").mapInArrow(_spreader(borders), PIECE_SCHEMA)
    present = [(ITEMS, 0, 0, "", 0, number, 0, 0, b"") for number in range(len(names))]
    items = spread.unionByName(session.createDataFrame(present, PIECE_SCHEMA))
    log = (report.log_begin, report.last_known_offset)
    damages = [(one.log_offset, one.log_offset + one.size) for one in report.damages]
    check = _index_checker([f"{root}/{INDEX}/{name}" for name in names], borders, rules, log, damages)
    with progress(session, "verifying the index"):
        rows = items.groupBy("file").applyInArrow(check, FINDING_SCHEMA).collect()
    report.findings += findings_of(rows)


def _spreader(borders: list[int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Sends each piece to the index files in whose stretch of the log it has keys."""

    def spread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        for batch in batches:
            rows, files = [], []
            for row, data in enumerate(batch.column("data").to_pylist()):
                offsets = np.frombuffer(data, INDEX_ITEM)["log_offset"]
                low, high = int(offsets[0]), int(offsets[-1])
                for file, (begin, end) in enumerate(pairwise(borders)):
                    if low < end and high >= begin:
                        rows.append(row)
                        files.append(file)
            taken = batch.take(pa.array(rows, pa.int64()))
            yield taken.set_column(batch.schema.get_field_index("file"), "file", pa.array(files, pa.int64()))

    return spread


def _index_checker(
    paths: list[str], borders: list[int], rules: Rules, log: tuple[int, int], damages: list[tuple[int, int]]
) -> Callable[[Any, Any], pa.Table]:
    def check(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        import numpy as np

        from rocketlet.spark_jobs.comparisons import compare_index, index_entries, wrong_links
        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        number = key[0].as_py()
        size = rules.geometry.file_size
        present = read_range(paths[number], 0, size)
        raw = bytes(present).ljust(size, b"\0")
        entries = index_entries(raw, rules.geometry)
        # The keys of one message may stand at the end of one file and at the begin of the next.
        if number:
            before = index_entries(bytes(read_range(paths[number - 1], 0, size)).ljust(size, b"\0"), rules.geometry)
            entries = np.concatenate((before[before["log_offset"] >= borders[number]], entries))
        border = (borders[number], borders[number + 1])
        found = compare_index(joined(table, INDEX_ITEM), entries, log, border, damages)
        found.links = wrong_links(raw, rules.geometry)
        rows = [
            {"place": paths[number], "what": what, "count": count, "first": -1}
            for what, count in (
                ("keys of the log are missing", found.missing), ("keys are of no message of the log", found.surplus),
                ("links of chains lead elsewhere", found.links),
                ("bytes are missing at the end of the file", size - len(present)),
            )
            if count
        ]  # fmt: skip
        return finding_table(rows)

    return check
