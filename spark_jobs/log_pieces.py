"""Reads every split of a log once, on the executors, and keeps the output of dispatch as packed pieces in Spark.

A row is a piece: units of one queue and file, index entries, or the summary of its split. Pieces are about a megabyte
at most, so a shuffle moves thousands of rows where it would have to move millions, and nothing is read twice.

Java: none
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import Fault
from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, CommitLog, LogDamage, Split, find_commit_log, read_split
from rocketlet.spark_jobs.log_damage import in_log, property_damages
from rocketlet.spark_jobs.progress import progress, tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rocketlet.spark_jobs.index_segments import QueueSpan, Rules
    from rocketlet.spark_jobs.message_columns import MessageBatch

PIECE_SCHEMA = (
    "kind string, split int, piece int, topic string, queue_id int, file long, first long, count long, data binary"
)
UNITS, ITEMS, SUMMARY = "units", "items", "summary"
_PIECE_ROWS = 40_000  # 1 MB: the JVM has several copies of a piece while it sorts and passes it on


@dataclass(slots=True)
class TopicCount:
    """Messages of one topic in one split."""

    topic: str
    messages: int
    bytes: int
    body_bytes: int
    first_time: int
    last_time: int
    untrusted: int = 0  # records whose body fails its CRC


@dataclass(slots=True)
class SplitSummary:
    """What the driver has to know about a split. Offsets are log offsets; `begin` is None where nothing begins in
    it."""

    split: int
    begin: int | None
    end: int
    blank: bool
    records: int = 0
    log_bytes: int = 0
    items: int = 0
    last_time: int = 0
    damages: list[LogDamage] = field(default_factory=list)
    spans: list[QueueSpan] = field(default_factory=list)
    topics: list[TopicCount] = field(default_factory=list)
    strange_topics: list[str] = field(default_factory=list)
    inner_batches: list[str] = field(default_factory=list)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> SplitSummary:
        from rocketlet.spark_jobs.index_segments import QueueSpan

        fields = json.loads(text)
        fields["damages"] = [LogDamage(**damage) for damage in fields["damages"]]
        fields["spans"] = [QueueSpan(**span) for span in fields["spans"]]
        fields["topics"] = [TopicCount(**count) for count in fields["topics"]]
        return cls(**fields)


class FalseRecord(Exception):
    """A split began at bytes inside a message that look like a record of this very place; read that file from its
    start instead."""

    def __init__(self, split: int) -> None:
        super().__init__(f"split {split}")
        self.split = split


def scan(
    session: SparkSession, splits: list[Split], rules: Rules, *, partitions: int, stop_at_damage: bool
) -> DataFrame:
    """The pieces of all splits; nothing is computed before an action."""
    numbers = session.range(0, len(splits), 1, max(1, min(partitions, len(splits))))
    return numbers.mapInArrow(_reader(splits, rules, stop_at_damage), PIECE_SCHEMA)


def _reader(splits: list[Split], rules: Rules, stop_at_damage: bool) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from pieces_of(number, splits[number], rules, stop_at_damage=stop_at_damage)

    return read


def pieces_of(number: int, split: Split, rules: Rules, *, stop_at_damage: bool) -> Iterator[pa.RecordBatch]:
    """The rows of one split."""
    import numpy as np

    from rocketlet.spark_jobs.index_segments import index_split
    from rocketlet.spark_jobs.message_columns import MessageBatch
    from rocketlet.spark_jobs.segment_rows import heads_at

    data, result = read_split(split, verify_body=True)
    base = split.segment.base + split.start
    damages = [in_log(split, damage) for damage in result.damages]
    places = result.places
    if stop_at_damage and result.damages:
        places = places[places < result.damages[0].at]
    batch = MessageBatch(data, result.heads_in(data) if len(places) == len(result.places) else heads_at(data, places))
    damages += property_damages(split, batch)
    bad = [damage.at for damage in result.damages if damage.fault is Fault.BODY_CRC]
    lost = np.isin(places, bad)
    index = index_split(batch, lost, rules)
    begin = None if result.begin is None else base + result.begin
    summary = SplitSummary(
        number, begin, base + result.end, result.blank, len(batch), int(batch.heads.size.sum()), len(index.items),
        int(batch.heads.store_timestamp[-1]) if len(batch) else 0, damages, index.spans, topic_counts(batch, lost),
        sorted(index.strange_topics), sorted(index.inner_batches),
    )  # fmt: skip
    rows = _Rows(number)
    for span, file, units in index.units:
        for begin_index in range(0, len(units), _PIECE_ROWS):
            part = units[begin_index : begin_index + _PIECE_ROWS]
            rows.add(UNITS, span.topic, span.queue_id, file, int(part["queue_offset"][0]), len(part), part.tobytes())
            if rows.is_full:
                yield rows.take()
    for begin_index in range(0, len(index.items), _PIECE_ROWS):
        items = index.items[begin_index : begin_index + _PIECE_ROWS]
        rows.add(ITEMS, "", 0, 0, begin_index, len(items), items.tobytes())
        if rows.is_full:
            yield rows.take()
    rows.add(SUMMARY, "", 0, 0, 0, len(batch), summary.to_json())
    yield rows.take()


class _Rows:
    """Rows on their way into one Arrow batch."""

    def __init__(self, split: int) -> None:
        self._split = split
        self._piece = 0
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, kind: str, topic: str, queue_id: int, file: int, first: int, count: int, data: bytes) -> None:
        self._rows.append({
            "kind": kind, "split": self._split, "piece": self._piece, "topic": topic, "queue_id": queue_id,
            "file": file, "first": first, "count": count, "data": data,
        })  # fmt: skip
        self._piece += 1
        self._bytes += len(data)

    @property
    def is_full(self) -> bool:
        return self._bytes > 4 << 20 or len(self._rows) >= 2000

    def take(self) -> pa.RecordBatch:
        import pyarrow as pa

        types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
        fields = [part.split() for part in PIECE_SCHEMA.split(", ")]
        schema = pa.schema([pa.field(name, types[kind]) for name, kind in fields])
        rows, self._rows, self._bytes = self._rows, [], 0
        return pa.RecordBatch.from_pylist(rows, schema=schema)


def topic_counts(batch: MessageBatch, lost: Any) -> list[TopicCount]:
    import numpy as np

    if not len(batch):
        return []
    number, heads = batch.topics.indices.to_numpy(), batch.heads
    counts = []
    for index, name in enumerate(batch.topics.dictionary.to_pylist()):
        rows = np.flatnonzero(number == index)
        times = heads.store_timestamp[rows]
        counts.append(TopicCount(
            name.decode("utf-8", "replace"), len(rows), int(heads.size[rows].sum()),
            int(heads.body_size[rows].sum()), int(times.min()), int(times.max()), int(lost[rows].sum()),
        ))  # fmt: skip
    return counts


@dataclass(slots=True)
class Stitched:
    """The splits joined: the log's end, and all damages in order."""

    end: int
    last_split: int  # of those before the end
    damages: list[LogDamage]
    is_cut: bool  # the end is a damage, with more data after it


def stitch(log: CommitLog, splits: list[Split], summaries: list[SplitSummary], *, stop_at_damage: bool) -> Stitched:
    """Make sure that each split begins where the one before ended. Raises FalseRecord.

    A segment that is not the last must end with its blank record: what is missing there is a damage too.
    """
    damages = list(log.damages)
    for summary in summaries:
        damages += summary.damages
    for left, right in pairwise(zip(splits, summaries, strict=True)):
        _check_border(left, right, damages)
    damages.sort(key=lambda damage: damage.log_offset)
    real = [damage for damage in damages if damage.log_offset >= 0 and damage.size > 0]
    end = max((summary.end for summary in summaries), default=log.begin_offset)
    if splits and summaries[-1].blank:
        end = splits[-1].segment.base + splits[-1].segment.size
    first = min((damage.log_offset for damage in real), default=end)
    if not stop_at_damage or first >= end:
        return Stitched(end, len(splits) - 1, damages, False)
    last = max((number for number, split in enumerate(splits) if split.segment.base + split.start <= first), default=-1)
    return Stitched(first, last, damages, True)


def _check_border(
    left: tuple[Split, SplitSummary], right: tuple[Split, SplitSummary], damages: list[LogDamage]
) -> None:
    (split, summary), (following, next_summary) = left, right
    segment = split.segment
    if segment.path == following.segment.path:
        if next_summary.begin is None:
            # Nothing begins there: the record of this split extends beyond it.
            next_summary.begin = next_summary.end = summary.end
            next_summary.blank = summary.blank
        elif next_summary.begin != summary.end and not (segment.is_ledger and next_summary.begin > summary.end):
            raise FalseRecord(next_summary.split)
    elif not summary.blank and (missing := segment.base + segment.size - summary.end) > 0:
        damages.append(LogDamage(segment.path, summary.end, missing, "nothing written up to the end of the file"))


def from_file_starts(splits: list[Split]) -> list[Split]:
    """The same log in splits that are whole files, whose first byte is always a record's."""
    by_path: dict[str, Split] = {}
    for split in splits:
        first = by_path.get(split.segment.path, split)
        by_path[split.segment.path] = replace(first, stop=split.stop)
    return list(by_path.values())


@dataclass(slots=True)
class Scanned:
    """A log whose splits were read: the pieces in Spark's keeping and what the driver knows."""

    log: CommitLog
    splits: list[Split]
    pieces: DataFrame
    summaries: list[SplitSummary]
    stitched: Stitched


def scan_log(
    session: SparkSession,
    store: str,
    rules: Rules,
    *,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
    stop_at_damage: bool = False,
    tail: str = "auto",
) -> Scanned:
    """Read every split once. Raises StoreNotFound."""
    from pyspark import StorageLevel

    log = find_commit_log(store, tail="stop" if stop_at_damage else tail)
    if log.is_open:
        tell(f"{store} is open or was not closed: taken up to its good end, {log.end_offset}")
    if partitions:
        split_size = max(-(-log.bytes // partitions), 1)
    splits = log.splits(split_size)
    while True:
        pieces = scan(session, splits, rules, partitions=partitions or len(splits), stop_at_damage=stop_at_damage)
        pieces = pieces.persist(StorageLevel.DISK_ONLY)  # they grow with the log
        with progress(session, "reading the log", log.bytes):
            rows = pieces.where(f"kind = '{SUMMARY}'").select("data").collect()
        summaries = sorted((SplitSummary.from_json(row.data) for row in rows), key=lambda summary: summary.split)
        try:
            stitched = stitch(log, splits, summaries, stop_at_damage=stop_at_damage)
        except FalseRecord:
            # A message contains a record made for this very offset: only splits of whole files are safe from it.
            pieces.unpersist()
            splits = from_file_starts(splits)
            continue
        return Scanned(log, splits, pieces, summaries[: stitched.last_split + 1], stitched)
