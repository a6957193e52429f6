"""Writes the index files of a scanned log, each by one task, from the pieces that hold its entries.

The task writes one piece after another, so it needs the memory of a file's slots and of a piece, however many entries
the file has.

Files are named after the store time of their first message, but always above the previous one even where the
clock went back: that is how our broker names them, and a Java broker only needs numbers.

Java: store/index/IndexService.java
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import rename
from rocketlet.spark_jobs.log_pieces import ITEMS, PIECE_SCHEMA, Scanned
from rocketlet.spark_jobs.piece_groups import by_number, groups_of
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.written_files import FILE_SCHEMA, file_rows, write_once
from rocketlet.store.layout.file_names import INDEX, index_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules


@dataclass(slots=True)
class IndexWritten:
    files: int = 0
    entries: int = 0
    end_timestamp: int = 0


def write_index(session: SparkSession, scanned: Scanned, staging: str, rules: Rules) -> IndexWritten:
    """All index files below `staging`, named as ours."""
    starts: dict[int, int] = {}
    total = 0
    for summary in scanned.summaries:
        starts[summary.split] = total
        total += summary.items
    if not total:
        return IndexWritten()
    items = scanned.pieces.where(f"kind = '{ITEMS}' and split <= {scanned.stitched.last_split}")
    capacity = rules.geometry.entries - 1
    files = -(-total // capacity)
    numbered = items.mapInArrow(_numberer(starts, capacity, files), PIECE_SCHEMA)
    with progress(session, "writing the index"):
        rows = by_number(numbered, files).mapInArrow(_index_writer(staging, starts, rules), FILE_SCHEMA).collect()
    last = 0
    rows.sort(key=lambda row: row.number)
    for row in rows:
        name = index_name(row.begin_time)
        if int(name) <= last:
            name = f"{last + 1:017d}"
        last = int(name)
        rename(row.path, f"{staging}/{INDEX}/{name}")
    return IndexWritten(len(rows), total, rows[-1].end_time)


def _numberer(starts: dict[int, int], capacity: int, files_in_all: int) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Gives each piece the number of the index file it goes to; one that goes to several is there several times.

    A file also gets the entry before its first: the header of a file begins where the one before ended.
    """

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            rows, files = [], []
            for row, (split, first, count) in enumerate(
                zip(*(batch.column(name).to_pylist() for name in ("split", "first", "count")), strict=True)
            ):
                begin = starts[split] + first
                end = begin + count
                for file in range(begin // capacity, min(end // capacity + 1, files_in_all)):
                    if max(begin, file * capacity - 1) < min(end, (file + 1) * capacity):
                        rows.append(row)
                        files.append(file)
            rows_of_file = batch.take(pa.array(rows, pa.int64()))
            yield rows_of_file.set_column(batch.schema.get_field_index("file"), "file", pa.array(files, pa.int64()))

    return number


def _index_writer(
    staging: str, starts: dict[int, int], rules: Rules
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    capacity = rules.geometry.entries - 1

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from rocketlet.spark_jobs.index_segments import IndexFile

        for (number,), pieces in groups_of(batches, "file"):
            index_file = IndexFile(rules.geometry)
            parts = (_part(data, starts[split] + first - number * capacity) for split, first, data in pieces)
            path = f"{staging}/numbered/{number:020d}"
            write_once(staging, path, rules.geometry.file_size, index_file.pieces(parts, follows=number > 0))
            yield from file_rows([{
                "path": path, "number": number,
                "begin_time": index_file.begin_timestamp, "end_time": index_file.end_timestamp,
            }]).to_batches()  # fmt: skip

    def _part(data: bytes, at: int) -> Any:
        """Those of a piece's entries that are in the file or right before it; its first is the `at`-th of the file."""
        import numpy as np

        from rocketlet.spark_jobs.index_segments import INDEX_ITEM

        return np.frombuffer(data, INDEX_ITEM)[max(-1 - at, 0) : capacity - at]

    return write
