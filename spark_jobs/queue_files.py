"""Writes the consume queues of a scanned log: one task a file of an even queue, one a queue that is uneven.

Java: store/ConsumeQueue.java
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.log_pieces import UNITS, Scanned, SplitSummary
from rocketlet.spark_jobs.piece_groups import groups_of, in_log_order
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.written_files import FILE_SCHEMA, file_rows, write_once
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE
from rocketlet.store.layout.file_names import offset_name, queue_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.segment_rows import Array

QUEUE_FILE = ("topic", "queue_id", "file")  # the columns that name one


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
        rows = in_log_order(units, *QUEUE_FILE).mapInArrow(write, FILE_SCHEMA).collect()
    totals = {name: sum(row[name] for row in rows) for name in ("units", "lost", "rewound", "implausible")}
    names = sorted(f"{topic}:{queue_id}" for topic, queue_id in uneven)
    return QueuesWritten(queues=len(first), files=len(rows), uneven=names, **totals)


def queues_in(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, int, Iterator[Array]]]:
    """(topic, queue, file, its units piece by piece), grouped by these."""
    import numpy as np

    from rocketlet.spark_jobs.index_segments import UNIT

    for (topic, queue_id, number), pieces in groups_of(batches, *QUEUE_FILE):
        yield topic, queue_id, number, (np.frombuffer(data, UNIT) for *_, data in pieces)


def _queue_writer(
    staging: str, rules: Rules, first: dict[tuple[str, int], int], log_begin: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_even(topic: str, queue_id: int, number: int, parts: Iterator[Array]) -> list[dict[str, Any]]:
        import numpy as np

        from rocketlet.spark_jobs.index_segments import even_queue_file

        units = np.concatenate(list(parts))
        is_first = first[topic, queue_id] // rules.units_per_file == number
        data = even_queue_file(units, number, rules, is_first=is_first)
        return [_write_queue_file(staging, topic, queue_id, number, data, rules) | {"units": len(units)}]

    def write_uneven(topic: str, queue_id: int, parts: Iterator[Array]) -> list[dict[str, Any]]:
        from rocketlet.spark_jobs.uneven_queue import uneven_queue

        with uneven_queue(parts, log_begin) as queue:
            files = queue.files(rules)
            rows = [_write_queue_file(staging, topic, queue_id, number, data, rules) for number, data in files]
        rows[0] |= {
            "units": queue.length - queue.lost, "lost": queue.lost, "rewound": queue.rewound,
            "implausible": queue.implausible,
        }  # fmt: skip
        return rows

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for topic, queue_id, number, parts in queues_in(batches):
            is_even = number >= 0
            rows = write_even(topic, queue_id, number, parts) if is_even else write_uneven(topic, queue_id, parts)
            yield from file_rows(rows).to_batches()

    return write


def _write_queue_file(
    staging: str, topic: str, queue_id: int, number: int, data: bytes, rules: Rules
) -> dict[str, Any]:
    size = rules.units_per_file * ENTRY_SIZE
    folder = f"{staging}/{queue_folder(topic, queue_id)}"
    path = f"{folder}/{offset_name(number * size)}"
    write_once(staging, path, size, [(0, data)])
    return {"path": path, "topic": topic, "queue_id": queue_id, "number": number}
