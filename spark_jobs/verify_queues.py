"""Compares the consume queues on disk with what the log says they hold.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import is_locked, list_folder, read_file, read_range
from rocketlet.spark_jobs.log_pieces import PIECE_SCHEMA, UNITS, Scanned
from rocketlet.spark_jobs.piece_groups import in_log_order
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.queue_files import QUEUE_FILE, queues_in, uneven_queues
from rocketlet.spark_jobs.verify_report import FINDING_SCHEMA, Finding, VerifyReport, finding_table, findings_of
from rocketlet.store.layout import queue_ext_layout
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE
from rocketlet.store.layout.file_names import (
    CONSUME_QUEUE,
    LOCK,
    offset_name,
    parse_offset,
    queue_ext_folder,
    queue_folder,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.segment_rows import Array


def verify_queues(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
    if scanned.log.has_rocksdb_queues:
        report.notes.append("the queues are in RocksDB and were not compared")
        return
    on_disk = _queue_files_on_disk(root)
    if not on_disk:
        report.notes.append(f"no queues below {root}/{CONSUME_QUEUE}: nothing to compare")
        return
    first, uneven = uneven_queues(scanned.summaries)
    present = [(UNITS, 0, 0, topic, queue_id, number, 0, 0, b"") for topic, queue_id, number in on_disk]
    units = scanned.pieces.where(f"kind = '{UNITS}'").unionByName(session.createDataFrame(present, PIECE_SCHEMA))
    if uneven:
        from pyspark.sql import functions as sql

        names = [f"{topic}\x00{queue_id}" for topic, queue_id in uneven]
        is_uneven = sql.concat("topic", sql.lit("\x00"), sql.col("queue_id").cast("string")).isin(names)
        units = units.withColumn("file", sql.when(is_uneven, sql.lit(-1)).otherwise(sql.col("file")))
    check = _queue_checker(root, rules, first, (report.log_begin, report.last_known_offset))
    with progress(session, "verifying queues"):
        rows = in_log_order(units, *QUEUE_FILE).mapInArrow(check, FINDING_SCHEMA).collect()
    report.findings += findings_of(rows)


def _queue_files_on_disk(root: str) -> list[tuple[str, int, int]]:
    """(topic, queue, offset of the file) of all queue files; the number of a file follows from their size."""
    result = []
    for topic in list_folder(f"{root}/{CONSUME_QUEUE}"):
        for queue in list_folder(f"{root}/{CONSUME_QUEUE}/{topic.name}") if topic.is_folder else []:
            if queue.is_folder and queue.name.isdigit():
                queue_id = int(queue.name)
                offsets = _offsets_on_disk(root, topic.name, queue_id)
                result += [(topic.name, queue_id, offset // size) for offset, size in offsets.items()]
    return result


def verify_emptied_log(scanned: Scanned, root: str, report: VerifyReport) -> None:
    """Where nothing of a log is left, no record contradicts the queues that it once had. Retention leaves a log's
    last file, so somebody else has removed it. A broker that runs may have begun only now."""
    if scanned.log.bytes or is_locked(f"{root}/{LOCK}"):
        return
    for topic in list_folder(f"{root}/{CONSUME_QUEUE}"):
        paths = [path for path in _queue_files_of(root, topic.name) if any(read_range(path, 0, ENTRY_SIZE))]
        if paths:
            what = "queue files have entries, and the log has no record"
            report.findings.append(Finding(f"{root}/{CONSUME_QUEUE}/{topic.name}", topic.name, what, len(paths)))


def _queue_files_of(root: str, topic: str) -> list[str]:
    folder = f"{root}/{CONSUME_QUEUE}/{topic}"
    queues = [f"{folder}/{queue.name}" for queue in list_folder(folder) if queue.is_folder]
    return [f"{queue}/{file.name}" for queue in queues for file in list_folder(queue) if not file.is_folder]


def _offsets_on_disk(root: str, topic: str, queue_id: int) -> dict[int, int]:
    """{offset that names a file: its size} of a queue."""
    sizes = {parse_offset(file.name): file.size for file in list_folder(f"{root}/{queue_folder(topic, queue_id)}")}
    return {offset: size for offset, size in sizes.items() if offset is not None and size}


def _queue_checker(
    root: str, rules: Rules, first: dict[tuple[str, int], int], log: tuple[int, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    per_file = rules.units_per_file

    def compare(topic: str, queue_id: int, number: int, place: int, expected: bytes) -> list[dict[str, Any]]:
        from rocketlet.spark_jobs.comparisons import compare_queue_file

        path = f"{root}/{queue_folder(topic, queue_id)}/{offset_name(number * per_file * ENTRY_SIZE)}"
        present = read_file(path)
        codes = _ext_codes(root, topic, queue_id)
        difference = compare_queue_file(expected, place, present or b"", number, per_file, log, codes)
        if not difference:
            return []
        return [{
            "place": f"{topic}:{queue_id}", "topic": topic, "what": "queue", "first": difference.first,
            "missing": difference.missing, "other": difference.other, "surplus": difference.surplus,
        }]  # fmt: skip

    def check_even(topic: str, queue_id: int, number: int, parts: Iterator[Array]) -> list[dict[str, Any]]:
        import numpy as np

        from rocketlet.spark_jobs.index_segments import even_units

        place, expected = even_units(np.concatenate(list(parts)), number, rules)
        return compare(topic, queue_id, number, place, expected)

    def check_uneven(topic: str, queue_id: int, parts: Iterator[Array]) -> list[dict[str, Any]]:
        from rocketlet.spark_jobs.uneven_queue import uneven_queue

        rows: list[dict[str, Any]] = []
        numbers = {offset // (per_file * ENTRY_SIZE) for offset in _offsets_on_disk(root, topic, queue_id)}
        with uneven_queue(parts, log[0]) as queue:
            for log_offset, expected_offset, offset in queue.breaks:
                problem = (
                    "queue offsets missing before the record"
                    if offset > expected_offset
                    else "queue offsets assigned twice"
                )
                rows.append({
                    "place": f"{topic}:{queue_id}", "topic": topic, "what": f"{problem} at log offset {log_offset}",
                    "count": abs(offset - expected_offset), "first": min(expected_offset, offset),
                })  # fmt: skip
            for number, data in queue.files(rules):
                numbers.discard(number)
                place = queue.first % per_file if number == queue.first // per_file else 0
                rows += compare(topic, queue_id, number, place, data[place * ENTRY_SIZE :])
        for number in sorted(numbers):
            rows += compare(topic, queue_id, number, 0, b"")
        return rows

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for topic, queue_id, number, parts in queues_in(batches):
            is_even = number >= 0
            rows = check_even(topic, queue_id, number, parts) if is_even else check_uneven(topic, queue_id, parts)
            yield from finding_table(rows).to_batches()

    return check


def _ext_codes(root: str, topic: str, queue_id: int) -> Callable[[int], int | None]:
    """Reads the tags code that the address of an extension unit stands for."""
    folder = f"{root}/{queue_ext_folder(topic, queue_id)}"
    files = {parse_offset(entry.name): entry for entry in list_folder(folder)}

    def code(address: int) -> int | None:
        offset = queue_ext_layout.to_offset(address)
        for begin, entry in files.items():
            if begin is not None and begin <= offset < begin + entry.size:
                raw = read_range(f"{folder}/{entry.name}", offset - begin, queue_ext_layout.MAX_UNIT_SIZE)
                unit = queue_ext_layout.decode(raw, 0)
                return None if unit is None else unit.tags_code
        return None

    return code
