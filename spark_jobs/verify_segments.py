"""Verifies a whole store: every record, every queue entry, every key of the index, every seal.

    records   size, lengths, own offset, CRC of the body, `__CRC32#` where there is one; each damage with its place
    offsets   queue offsets follow one another: gaps, and offsets given out twice
    queues    what stands in `consumequeue/` is what the log says
    index     each key of the log is in `index/` and no other; the chains lead where they should
    seals     the checksums our broker keeps of full log files

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from common.message_record import FIXED
from spark_jobs.commit_log import DEFAULT_SPLIT, LogDamage
from spark_jobs.files import list_folder, read_file, read_range
from spark_jobs.log_pieces import ITEMS, PIECE_SCHEMA, UNITS, Scanned, scan_log
from spark_jobs.progress import progress
from spark_jobs.queue_files import uneven_queues
from spark_jobs.written_files import joined
from store.layout import queue_ext_layout
from store.layout.consume_queue_entry import ENTRY_SIZE
from store.layout.file_names import (
    CONSUME_QUEUE,
    INDEX,
    offset_name,
    parse_index_name,
    parse_offset,
    queue_ext_folder,
    queue_folder,
)
from store.layout.index_layout import HEADER_SIZE, decode_header

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark_jobs.index_segments import Rules

_FINDING_SCHEMA = (
    "place string, topic string, what string, count long, first long, missing long, other long, surplus long"
)
_EXAMPLES = 20


@dataclass(slots=True)
class Finding:
    """Something wrong at a place (a file, or topic:queue), with how often it occurs and the first offset."""

    place: str
    topic: str
    what: str
    count: int
    first: int = -1

    def __str__(self) -> str:
        where = "" if self.first < 0 else f", first at {self.first}"
        return f"{self.place}: {self.count} {self.what}{where}"


@dataclass(slots=True)
class SegmentReport:
    path: str
    records: int = 0
    log_bytes: int = 0
    damages: int = 0
    damaged_bytes: int = 0


@dataclass(slots=True)
class TopicReport:
    topic: str
    messages: int = 0
    log_bytes: int = 0
    untrusted: int = 0
    findings: int = 0


@dataclass(slots=True)
class VerifyReport:
    """All of it. `is_good` says that there is neither damage nor finding."""

    log_begin: int = 0
    log_end: int = 0
    segments: list[SegmentReport] = field(default_factory=list)
    topics: list[TopicReport] = field(default_factory=list)
    damages: list[LogDamage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.damages and not self.findings

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_good": self.is_good}

    def lines(self) -> list[str]:
        said = [f"{one.path}: {one.size} bytes at {one.log_offset}: {one.reason}" for one in self.damages]
        said += [str(finding) for finding in self.findings] + self.notes
        for segment in self.segments:
            state = "good" if not segment.damages else f"{segment.damages} damages, {segment.damaged_bytes} bytes"
            said.append(f"{segment.path}: {segment.records} records, {segment.log_bytes} bytes, {state}")
        for topic in self.topics:
            state = "good"
            if topic.untrusted or topic.findings:
                state = f"{topic.untrusted} bodies that fail their CRC, {topic.findings} findings in its queues"
            said.append(f"topic {topic.topic}: {topic.messages} messages, {topic.log_bytes} bytes, {state}")
        return said


def verify(
    session: SparkSession,
    store: str,
    rules: Rules,
    *,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
) -> VerifyReport:
    """The whole job. Raises StoreNotFound. Of several folders all logs are read, but only the first's queues."""
    scanned = scan_log(session, store, rules, partitions=partitions, split_size=split_size)
    root = store.split(",")[0].rstrip("/")
    try:
        report = _of_the_log(scanned)
        _verify_queues(session, scanned, root, rules, report)
        _verify_index(session, scanned, root, rules, report)
    finally:
        scanned.pieces.unpersist()
    counts: dict[str, int] = {}
    for finding in report.findings:
        counts[finding.topic] = counts.get(finding.topic, 0) + 1
    for topic in report.topics:
        topic.findings = counts.get(topic.topic, 0)
    return report


def _of_the_log(scanned: Scanned) -> VerifyReport:
    report = VerifyReport(scanned.log.begin_offset, scanned.stitched.end, damages=scanned.stitched.damages)
    segments: dict[str, SegmentReport] = {}
    topics: dict[str, TopicReport] = {}
    for split, summary in zip(scanned.splits, scanned.summaries, strict=False):
        segment = segments.setdefault(split.segment.path, SegmentReport(split.segment.path))
        segment.records += summary.records
        segment.log_bytes += summary.log_bytes
        for count in summary.topics:
            topic = topics.setdefault(count.topic, TopicReport(count.topic))
            topic.messages += count.messages
            topic.log_bytes += count.bytes
            topic.untrusted += count.untrusted
    for damage in report.damages:
        segment = segments.setdefault(damage.path, SegmentReport(damage.path))
        segment.damages += 1
        segment.damaged_bytes += damage.size
    report.segments = [segments[path] for path in sorted(segments)]
    report.topics = [topics[name] for name in sorted(topics)]
    names = sorted({name for summary in scanned.summaries for name in summary.inner_batches})
    report.notes += [f"topic {name}: inner batches of 5.x, whose batchconsumequeue is not verified" for name in names]
    names = sorted({name for summary in scanned.summaries for name in summary.strange_topics})
    report.findings += [Finding(name, name, "records with a name or numbers that cannot be right", 1) for name in names]
    return report


# ---- queues


def _verify_queues(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
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
    most_lost = sum(damage.size for damage in scanned.stitched.damages) // FIXED
    check = _queue_checker(root, rules, first, most_lost, (report.log_begin, report.log_end))
    with progress(session, "verifying queues"):
        rows = units.groupBy("topic", "queue_id", "file").applyInArrow(check, _FINDING_SCHEMA).collect()
    report.findings += _findings(rows)


def _queue_files_on_disk(root: str) -> list[tuple[str, int, int]]:
    """(topic, queue, offset of the file) of all queue files; the number of a file follows from their size."""
    found = []
    for topic in list_folder(f"{root}/{CONSUME_QUEUE}"):
        for queue in list_folder(f"{root}/{CONSUME_QUEUE}/{topic.name}") if topic.is_folder else []:
            if queue.is_folder and queue.name.isdigit():
                queue_id = int(queue.name)
                offsets = _offsets_on_disk(root, topic.name, queue_id)
                found += [(topic.name, queue_id, offset // size) for offset, size in offsets.items()]
    return found


def _offsets_on_disk(root: str, topic: str, queue_id: int) -> dict[int, int]:
    """{offset that names a file: its size} of a queue."""
    sizes = {parse_offset(file.name): file.size for file in list_folder(f"{root}/{queue_folder(topic, queue_id)}")}
    return {offset: size for offset, size in sizes.items() if offset is not None and size}


def _queue_checker(
    root: str, rules: Rules, first: dict[tuple[str, int], int], most_lost: int, log: tuple[int, int]
) -> Callable[[Any, Any], pa.Table]:
    per_file = rules.units_per_file

    def compare(topic: str, queue_id: int, number: int, place: int, expected: bytes) -> list[dict[str, Any]]:
        from spark_jobs.comparisons import compare_queue_file

        path = f"{root}/{queue_folder(topic, queue_id)}/{offset_name(number * per_file * ENTRY_SIZE)}"
        present = read_file(path)
        codes = _ext_codes(root, topic, queue_id)
        found = compare_queue_file(expected, place, present or b"", number, per_file, log, codes)
        if not found:
            return []
        return [{
            "place": f"{topic}:{queue_id}", "topic": topic, "what": "queue", "first": found.first,
            "missing": found.missing, "other": found.other, "surplus": found.surplus,
        }]  # fmt: skip

    def check(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        from spark_jobs.index_segments import UNIT, even_units, files_of, uneven_queue

        topic, queue_id, number = (part.as_py() for part in key)
        units = joined(table, UNIT)
        rows: list[dict[str, Any]] = []
        if number >= 0:
            place, expected = even_units(units, number, rules)
            rows = compare(topic, queue_id, number, place, expected)
        else:
            made = uneven_queue(units, most_lost)
            for log_offset, wanted, offset in made.breaks[:_EXAMPLES]:
                what = "queue offsets missing before the record" if offset > wanted else "queue offsets given out twice"
                rows.append({
                    "place": f"{topic}:{queue_id}", "topic": topic, "what": f"{what} at log offset {log_offset}",
                    "count": abs(offset - wanted), "first": min(wanted, offset),
                })  # fmt: skip
            numbers = {offset // (per_file * ENTRY_SIZE) for offset in _offsets_on_disk(root, topic, queue_id)}
            for number, data in files_of(made, rules):
                numbers.discard(number)
                place = made.first % per_file if number == made.first // per_file else 0
                rows += compare(topic, queue_id, number, place, data[place * ENTRY_SIZE :])
            for number in sorted(numbers):
                rows += compare(topic, queue_id, number, 0, b"")
        return _finding_table(rows)

    return check


def _ext_codes(root: str, topic: str, queue_id: int) -> Callable[[int], int | None]:
    """Reads the tags code behind the address of an extension unit."""
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


# ---- index


def _verify_index(session: SparkSession, scanned: Scanned, root: str, rules: Rules, report: VerifyReport) -> None:
    names = [entry.name for entry in list_folder(f"{root}/{INDEX}") if parse_index_name(entry.name) is not None]
    if not names:
        report.notes.append(f"no index files below {root}/{INDEX}: nothing to compare")
        return
    begins = []
    for name in names:
        header = decode_header(read_range(f"{root}/{INDEX}/{name}", 0, HEADER_SIZE))
        begins.append(header.begin_log_offset)
    borders = [-1, *begins[1:], 1 << 62]
    spread = scanned.pieces.where(f"kind = '{ITEMS}'").mapInArrow(_spreader(borders), PIECE_SCHEMA)
    present = [(ITEMS, 0, 0, "", 0, number, 0, 0, b"") for number in range(len(names))]
    items = spread.unionByName(session.createDataFrame(present, PIECE_SCHEMA))
    log = (report.log_begin, report.log_end)
    damages = [(one.log_offset, one.log_offset + one.size) for one in report.damages]
    check = _index_checker([f"{root}/{INDEX}/{name}" for name in names], borders, rules, log, damages)
    with progress(session, "verifying the index"):
        rows = items.groupBy("file").applyInArrow(check, _FINDING_SCHEMA).collect()
    report.findings += _findings(rows)


def _spreader(borders: list[int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Sends each piece to the index files in whose stretch of the log it has keys."""

    def spread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from spark_jobs.index_segments import INDEX_ITEM

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

        from spark_jobs.comparisons import compare_index, index_entries, wrong_links
        from spark_jobs.index_segments import INDEX_ITEM

        number = key[0].as_py()
        raw = read_range(paths[number], 0, rules.geometry.file_size)
        entries = index_entries(raw, rules.geometry)
        # The keys of one message may stand at the end of one file and at the begin of the next.
        if number:
            before = index_entries(read_range(paths[number - 1], 0, rules.geometry.file_size), rules.geometry)
            entries = np.concatenate((before[before["log_offset"] >= borders[number]], entries))
        border = (borders[number], borders[number + 1])
        found = compare_index(joined(table, INDEX_ITEM), entries, log, border, damages)
        found.links = wrong_links(raw, rules.geometry)
        rows = [
            {"place": paths[number], "what": what, "count": count, "first": -1}
            for what, count in (
                ("keys of the log are missing", found.missing), ("keys are of no message of the log", found.surplus),
                ("links of chains lead elsewhere", found.links),
            )
            if count
        ]  # fmt: skip
        return _finding_table(rows)

    return check


# ---- findings


def _finding_table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    types = {"string": pa.string(), "long": pa.int64()}
    fields = [part.split() for part in _FINDING_SCHEMA.split(", ")]
    schema = pa.schema([pa.field(name, types[kind]) for name, kind in fields])
    empty = {name: "" if kind == "string" else 0 for name, kind in fields}
    return pa.Table.from_pylist([empty | row for row in rows], schema=schema)


def _findings(rows: list[Any]) -> list[Finding]:
    found = []
    for row in sorted(rows, key=lambda row: (row.place, row.first, row.what)):
        if row.what == "queue":
            for what in ("missing", "other", "surplus"):
                if row[what]:
                    found.append(Finding(row.place, row.topic, f"entries {_WORDS[what]}", row[what], row.first))
        else:
            found.append(Finding(row.place, row.topic, row.what, row["count"], row.first))
    return found


_WORDS = {
    "missing": "missing in the queue",
    "other": "of the queue say something else than the log",
    "surplus": "of the queue are of no message of the log",
}
