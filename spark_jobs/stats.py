"""What is in a store: messages, bytes, rates and sizes by topic, the ends of its queues, and how far groups lag.

Lag is the end of a queue in the log less the offset that `config/consumerOffset.json` has for the group, so it is as
old as that file: a broker writes it every five seconds.

Java: tools/command/consumer/ConsumerProgressSubCommand.java, tools/command/stats/StatsAllSubCommand.java
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rocketlet.common.fastjson import InvalidJson, loads
from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, find_commit_log
from rocketlet.spark_jobs.datasource import FORMAT
from rocketlet.spark_jobs.files import read_file
from rocketlet.spark_jobs.progress import progress
from rocketlet.store.layout.file_names import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = "topic string, queue_id int, queue_offset long, size int, body_size int, store_time timestamp, sys_flag int"
_MAX_POINTS = 240  # of the series in time, so that a plot stays readable
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 86400, 7 * 86400)


@dataclass(slots=True)
class TopicStats:
    """Times in ms; sizes in bytes; the rate is over the time between first and last message."""

    topic: str
    messages: int
    log_bytes: int
    body_bytes: int
    first_time: int
    last_time: int
    body_median: float
    body_p99: float
    body_max: int
    per_second: float = 0.0


@dataclass(slots=True)
class QueueStats:
    topic: str
    queue_id: int
    begin: int
    end: int
    messages: int


@dataclass(slots=True)
class Lag:
    """Messages that a group has not yet committed; `queues` of them with any."""

    group: str
    topic: str
    lag: int
    queues: int
    worst_queue: int
    worst_lag: int


@dataclass(slots=True)
class StoreStats:
    log_begin: int
    log_end: int
    topics: list[TopicStats] = field(default_factory=list)
    queues: list[QueueStats] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    step: int = 1  # seconds
    series: list[tuple[str, int, int, int]] = field(default_factory=list)  # (topic, ms, messages, bytes)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        result = [
            f"{'topic':40} {'messages':>12} {'MiB':>10} {'per second':>11} {'median':>8} {'p99':>8} {'largest':>9}"
        ]
        for topic in sorted(self.topics, key=lambda topic: -topic.log_bytes):
            amounts = f"{topic.messages:12} {topic.log_bytes / (1 << 20):10.1f} {topic.per_second:11.1f}"
            sizes = f"{topic.body_median:8.0f} {topic.body_p99:8.0f} {topic.body_max:9}"
            result.append(f"{topic.topic[:40]:40} {amounts} {sizes}")
        if self.lags:
            result += ["", f"{'group':40} {'topic':40} {'lag':>12}  worst queue"]
        for lag in self.lags:
            result.append(f"{lag.group[:40]:40} {lag.topic[:40]:40} {lag.lag:12}  {lag.worst_queue} ({lag.worst_lag})")
        return result + self.notes


def stats(
    session: SparkSession, store: str, *, partitions: int | None = None, split_size: int = DEFAULT_SPLIT
) -> StoreStats:
    """Read the log once. Raises StoreNotFound."""
    from pyspark.sql import functions as sql

    log = find_commit_log(store)
    result = StoreStats(log.begin_offset, log.end_offset)
    reader = session.read.format(FORMAT).schema(_SCHEMA)
    rows = reader.option("partitions", partitions or 0).option("split_size", split_size).load(store)
    milliseconds = sql.unix_millis("store_time")
    span = _span_of(store)
    result.step = next((step for step in _STEPS if span // (step * 1000) < _MAX_POINTS), _STEPS[-1])
    slot = sql.floor(milliseconds / (result.step * 1000)).cast("long")
    # One pass: the finest groups first, everything else from them. Sizes are summed up as a histogram by topic.
    fine = rows.groupBy("topic", "queue_id", slot.alias("slot"), "body_size").agg(
        sql.count(sql.lit(1)).alias("messages"),
        sql.sum("size").alias("bytes"),
        sql.min(milliseconds).alias("first"),
        sql.max(milliseconds).alias("last"),
        sql.min("queue_offset").alias("begin"),
        sql.max("queue_offset").alias("end"),
    )
    fine = fine.persist()
    with progress(session, "reading the log", log.bytes):
        sizes = fine.groupBy("topic").agg(
            sql.sum("messages").alias("messages"), sql.sum("bytes").alias("bytes"),
            sql.sum(sql.col("messages") * sql.col("body_size")).alias("bodies"),
            sql.min("first").alias("first"), sql.max("last").alias("last"), sql.max("body_size").alias("largest"),
            sql.percentile("body_size", [0.5, 0.99], sql.col("messages")).alias("percentiles"),
        ).collect()  # fmt: skip
    for row in sizes:
        seconds = max((row["last"] - row["first"]) / 1000, 0.001)
        result.topics.append(TopicStats(
            row.topic, row.messages, row.bytes, row.bodies, row["first"], row["last"], float(row.percentiles[0]),
            float(row.percentiles[1]), row.largest, row.messages / seconds if row.messages > 1 else 0.0,
        ))  # fmt: skip
    result.topics.sort(key=lambda topic: topic.topic)
    totals = (sql.sum("messages").alias("messages"), sql.min("begin").alias("begin"), sql.max("end").alias("end"))
    for row in fine.groupBy("topic", "queue_id").agg(*totals).orderBy("topic", "queue_id").collect():
        result.queues.append(QueueStats(row.topic, row.queue_id, row.begin, row.end + 1, row.messages))
    amounts = (sql.sum("messages").alias("messages"), sql.sum("bytes").alias("bytes"))
    for row in fine.groupBy("topic", "slot").agg(*amounts).orderBy("topic", "slot").collect():
        result.series.append((row.topic, row.slot * result.step * 1000, row.messages, row.bytes))
    fine.unpersist()
    _add_lags(result, store)
    return result


def _span_of(store: str) -> int:
    """Milliseconds from the first message to about the last, from the segments' first records: decides the step."""
    from rocketlet.spark_jobs.commit_log import Split, read_split
    from rocketlet.spark_jobs.segment_rows import heads_at

    times = []
    segments = find_commit_log(store).segments
    for segment, start in [(segments[0], 0), (segments[-1], max(segments[-1].end - (1 << 20), 0))] if segments else []:
        data, records = read_split(Split(segment, start, segment.end if start else 1, start == 0))
        if records.places.size:
            heads = heads_at(data, records.places)
            times += [int(heads.store_timestamp[0]), int(heads.store_timestamp[-1])]
    return max(times) - min(times) if times else 0


def _add_lags(result: StoreStats, store: str) -> None:
    root = store.split(",")[0].rstrip("/")
    path = f"{root}/{CONFIG}/consumerOffset.json"
    raw = read_file(path) or read_file(f"{path}.bak")
    if raw is None:
        result.notes.append(f"no {path}: lags are not known")
        return
    try:
        table = loads(raw).get("offsetTable", {})
    except InvalidJson as error:
        result.notes.append(f"{path}: {error}; lags are not known")
        return
    ends = {(queue.topic, queue.queue_id): queue.end for queue in result.queues}
    for name, offsets in sorted(table.items()):
        topic, _, group = name.partition("@")
        lag_by_queue = {
            int(queue_id): max(ends[topic, int(queue_id)] - int(offset), 0)
            for queue_id, offset in offsets.items()
            if (topic, int(queue_id)) in ends
        }
        if lag_by_queue:
            worst = max(lag_by_queue, key=lambda queue_id: lag_by_queue[queue_id])
            lagging = sum(1 for lag in lag_by_queue.values() if lag)
            result.lags.append(Lag(group, topic, sum(lag_by_queue.values()), lagging, worst, lag_by_queue[worst]))
    result.lags.sort(key=lambda lag: (-lag.lag, lag.group, lag.topic))
