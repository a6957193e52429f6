"""Writes the consume queues of a scanned log: one task a file of an even queue, one a queue that is uneven.

Java: store/ConsumeQueue.java
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.log_pieces import UNITS, Scanned, SplitSummary
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.written_files import FILE_SCHEMA, file_rows, joined, write_once
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE
from rocketlet.store.layout.file_names import offset_name, queue_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules


@dataclass(slots=True)
class QueuesWritten:
    """`lost` offsets are marked so, `rewound` were assigned twice, `implausible` ones were ignored."""

    queues: int = 0
    files: int = 0
    units: int = 0
    lost: int = 0
    rewound: int = 0
    implausible: int = 0
    uneven: list[str] = field(default_factory=list)


def uneven_queues(summaries: list[SplitSummary]) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]]]:
    """({queue: first offset} of all, those whose offsets do not simply follow one another)."""
    first: dict[tuple[str, int], int] = {}
    following: dict[tuple[str, int], int] = {}
    uneven = set()
    for summary in summaries:
        for span in summary.spans:
            queue = (span.topic, span.queue_id)
            first.setdefault(queue, span.first)
            if not span.is_even or following.get(queue, span.first) != span.first:
                uneven.add(queue)
            following[queue] = span.first + span.count
    return first, uneven


def write_queues(session: SparkSession, scanned: Scanned, staging: str, rules: Rules) -> QueuesWritten:
    """All queue files below `staging`, laid out as a store has them."""
    first, uneven = uneven_queues(scanned.summaries)
    units = scanned.pieces.where(f"kind = '{UNITS}' and split <= {scanned.stitched.last_split}")
    # An uneven queue is one group, an even one a group a file.
    names = [f"{topic}\x00{queue_id}" for topic, queue_id in uneven]
    if names:
        from pyspark.sql import functions as sql

        is_uneven = sql.concat("topic", sql.lit("\x00"), sql.col("queue_id").cast("string")).isin(names)
        units = units.withColumn("file", sql.when(is_uneven, sql.lit(-1)).otherwise(sql.col("file")))
    write = _queue_writer(staging, rules, first, scanned.log.begin_offset)
    with progress(session, "writing queues"):
        rows = units.groupBy("topic", "queue_id", "file").applyInArrow(write, FILE_SCHEMA).collect()
    totals = {name: sum(row[name] for row in rows) for name in ("units", "lost", "rewound", "implausible")}
    names = sorted(f"{topic}:{queue_id}" for topic, queue_id in uneven)
    return QueuesWritten(queues=len(first), files=len(rows), uneven=names, **totals)


def _queue_writer(
    staging: str, rules: Rules, first: dict[tuple[str, int], int], log_begin: int
) -> Callable[[Any, Any], pa.Table]:
    def write(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        from rocketlet.spark_jobs.index_segments import UNIT, even_queue_file, files_of, uneven_queue

        topic, queue_id, number = (part.as_py() for part in key)
        units = joined(table, UNIT)
        rows = []
        if number >= 0:
            is_first = first[topic, queue_id] // rules.units_per_file == number
            data = even_queue_file(units, number, rules, is_first=is_first)
            rows.append(_write_queue_file(staging, topic, queue_id, number, data, rules) | {"units": len(units)})
        else:
            made = uneven_queue(units, log_begin)
            for number, data in files_of(made, rules):
                rows.append(_write_queue_file(staging, topic, queue_id, number, data, rules))
            rows[0] |= {
                "units": len(made.entries) // ENTRY_SIZE - made.lost, "lost": made.lost, "rewound": made.rewound,
                "implausible": made.implausible,
            }  # fmt: skip
        return file_rows(rows)

    return write


def _write_queue_file(
    staging: str, topic: str, queue_id: int, number: int, data: bytes, rules: Rules
) -> dict[str, Any]:
    size = rules.units_per_file * ENTRY_SIZE
    folder = f"{staging}/{queue_folder(topic, queue_id)}"
    path = f"{folder}/{offset_name(number * size)}"
    write_once(staging, path, size, [(0, data)])
    return {"path": path, "topic": topic, "queue_id": queue_id, "number": number}
