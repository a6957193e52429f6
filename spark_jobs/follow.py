"""Keeps Parquet files by day and topic up to date, from brokers or from the store of a running broker.

A Structured Streaming query reads: its checkpoint says what has been read, and a repeated batch reads the same
messages. `DayFiles` makes each batch appear once. So every message is in the files exactly once, whatever is killed in
between.

`status.json` in the folder `_follow` tells after each batch how far the files are; `status` adds the lag.

Java: none
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketlet.common.clock import system_clock
from rocketlet.common.errors import RocketletError
from rocketlet.spark_jobs.commit_log import find_commit_log
from rocketlet.spark_jobs.day_files import DayFiles, write_whole
from rocketlet.spark_jobs.export import COLUMNS
from rocketlet.spark_jobs.rocketmq.broker_reader import BrokerReader
from rocketlet.spark_jobs.rocketmq.options import read_options
from rocketlet.spark_jobs.rocketmq.queue_offsets import from_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("rocketlet.spark_jobs.follow")

_LOOK_EVERY = 1  # seconds until a signal is seen, at the most


class NothingFollowed(RocketletError):
    """There is no status in a folder: nothing was written there by `follow`."""


class UnknownTopic(RocketletError):
    """No broker serves a topic that is to be followed."""


class GivenUp(RocketletError):
    """A batch was under way when the query was told to stop; it is repeated at the next start."""


# By these words Spark knows that the function of a batch was interrupted by a stop, which is no error. In the words of
# what really happened, which are long, its search for them overflows the stack.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException"


@dataclass(frozen=True, slots=True)
class Source:
    """What is followed: a format, and its options. Secrets are not among those that are kept in the status."""

    format: str
    options: dict[str, str]

    def kept(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name not in ("secretKey", "securityToken")}


def check_topics(source: Source, out: Path) -> None:
    """Raises UnknownTopic where the name servers know none of a name, and nothing was read of one before.

    Spark would ask for minutes, since a topic is unknown too while its only broker restarts.
    """
    if source.format != "rocketmq":
        return
    options = read_options(source.options, streaming=True)
    followed = _followed(out)
    with BrokerReader(options.connection.config(), options.retry_seconds) as reader:
        if unknown := reader.unknown(topic for topic in options.topics if topic not in followed):
            raise UnknownTopic(
                f"no broker serves {', '.join(unknown)}, say the name servers {options.connection.namesrv}: correct"
                " --topics, or create it first; `rocketlet topics` lists those there are"
            )


def follow(
    session: SparkSession,
    source: Source,
    out: Path,
    *,
    every: str,
    once: bool,
    target_bytes: int,
    stopped: threading.Event,
    report: Callable[[str], None],
) -> int:
    """Run until `stopped` is set, or with `once` until everything present is written. Returns the number of messages.

    A batch that is under way is given up, and repeated the next time. Raises what the query ended with.
    """
    from pyspark.sql import functions as sql

    files = DayFiles(out, target_bytes)
    files.recover()
    written = 0

    def write(frame: DataFrame, batch: int) -> None:
        try:
            add(frame, batch)
        except Exception:
            if stopped.is_set():
                raise GivenUp(_INTERRUPTED) from None
            raise

    def add(frame: DataFrame, batch: int) -> None:
        nonlocal written
        staging = files.staging(batch)
        rows = frame.withColumn("day", sql.to_date("store_time"))
        rows.write.partitionBy("day", "topic").parquet(str(staging))
        count = _rows_in(staging)
        files.add(batch)
        joined = files.compact(batch)
        written += count
        report(f"batch {batch}: {count:,} messages{f', {joined} files joined' if joined else ''}")

    reader = session.readStream.format(source.format).schema(COLUMNS).options(**source.options)
    stream = reader.option("inflate", "true").load().writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(files.own / "checkpoint")).queryName(f"follow into {out}")
    query = (stream.trigger(availableNow=True) if once else stream.trigger(processingTime=every)).start()
    last_batch = -1
    while not query.awaitTermination(_LOOK_EVERY):  # raises what the query failed with
        if stopped.is_set():
            query.stop()
        last_batch = _write_status(files, source, query.lastProgress, last_batch)
    _write_status(files, source, query.lastProgress, last_batch)
    return written


def _rows_in(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("day=*/topic=*/*.parquet"))


def _write_status(files: DayFiles, source: Source, progress: Any, last_batch: int) -> int:
    """Write the status after a new batch; returns the number of the batch."""
    if progress is None or progress["batchId"] == last_batch:
        return last_batch
    (read,) = progress["sources"]
    end = read["endOffset"]
    content = {
        "format": source.format,
        "options": source.kept(),
        "batch": progress["batchId"],
        "time": system_clock(),
        "offsets": json.loads(end) if isinstance(end, str) else end,
    }
    write_whole(files.own / "status.json", json.dumps(content))
    return int(progress["batchId"])


def _followed(out: Path) -> set[str]:
    try:
        content = json.loads(_status_file(out).read_text("utf-8"))
    except FileNotFoundError:
        return set()
    return {queue.topic for queue in from_state(content["offsets"])} if content["format"] == "rocketmq" else set()


def _status_file(out: Path) -> Path:
    return out / "_follow" / "status.json"


def status(out: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """How far the files are, and the lag: messages by topic, or bytes of a store's log. Raises NothingFollowed."""
    path = _status_file(out)
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NothingFollowed(f"no {path}: `follow --out {out}` has not finished a batch yet") from None
    if content["format"] == "commitlog":
        end = find_commit_log(content["options"]["path"], tail="stop").end_offset
        return content | {"lag_bytes": max(end - content["offsets"]["log_offset"], 0)}
    options = read_options(content["options"] | secrets, streaming=True)
    written = from_state(content["offsets"])
    with BrokerReader(options.connection.config(), retry_seconds=5) as reader:
        ends = reader.max_offsets(written)
    lag: dict[str, int] = {}
    for queue, end in ends.items():
        lag[queue.topic] = lag.get(queue.topic, 0) + max(end - written[queue], 0)
    return content | {"lag": lag}
