"""Pieces that belong together, brought to one task in the order of the log, one after another.

Spark sorts them and keeps on disk what does not fit; the task takes them as they come, so that the length of a queue or
the size of an index file costs it no memory.

Java: none
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MAX_PARTITIONS = 2000

Piece = tuple[int, int, bytes]  # split, first, data


def in_log_order(pieces: DataFrame, *group: str) -> DataFrame:
    """Each partition has whole groups of these columns."""
    return pieces.repartition(*group).sortWithinPartitions(*group, "split", "piece")


def by_number(pieces: DataFrame, count: int) -> DataFrame:
    """The same for groups that the column `file` numbers from 0 to before `count`: each is big, and so has a partition
    of its own."""
    from pyspark.sql import functions as sql

    partitioned = pieces.repartitionById(min(count, _MAX_PARTITIONS), sql.col("file").cast("int"))
    return partitioned.sortWithinPartitions("file", "split", "piece")


def groups_of(batches: Iterator[pa.RecordBatch], *group: str) -> Iterator[tuple[tuple[Any, ...], Iterator[Piece]]]:
    """Each group's values and its pieces, from what is `in_log_order`; each must be taken before the next."""
    width = len(group)
    for key, rows in groupby(_rows_of(batches, *group, "split", "first", "data"), lambda row: row[:width]):
        yield key, (row[width:] for row in rows)


def _rows_of(batches: Iterator[pa.RecordBatch], *names: str) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = [batch.column(name) for name in names]
        for row in range(batch.num_rows):
            yield tuple(column[row].as_py() for column in columns)
