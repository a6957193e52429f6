"""`spark.readStream.format("commitlog")`: follows the log of a store that a broker writes to, without touching it.

A stream's position is one log offset. Files before the last one with data are finished: any part of them may be read,
and a damage in them is passed as a batch read passes it. In the last one the records are followed, from where the
stream looked last, and what does not follow is left to the broker: the stream waits there until records follow, or
until the log continues in the next file.

Java: store/DefaultMessageStore.java#ReputMessageService
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketlet.common.errors import RocketletError
from rocketlet.common.message_record import BLANK_SIZE
from rocketlet.spark_jobs.commit_log import CommitLog, Segment, Split, list_segments, read_split
from rocketlet.spark_jobs.files import StoreNotFound, read_range

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("rocketlet.spark_jobs.log_stream")

_WINDOW = 16 << 20


class LogLost(RocketletError):
    """Files of the log that the stream has not read yet are gone."""


@dataclass(slots=True)
class StreamOptions:
    """The options of a stream in addition to those of a batch read."""

    starting: str
    max_bytes: int | None
    fail_on_data_loss: bool


@dataclass
class LogPartition(InputPartition):
    """What one task reads."""

    split: Split


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream. `rows` makes the rows of one split; it is the batch reader's."""

    def __init__(self, path: str, split_size: int, options: StreamOptions, schema: StructType, rows: Any) -> None:
        self.path = path
        self.split_size = split_size
        self.options = options
        self.schema = schema
        self.rows = rows
        self._followed = -1  # the end of the last record that was seen
        self._target: int | None = None  # of Trigger.AvailableNow

    def initialOffset(self) -> dict[str, int]:
        log = self._segments()
        if self.options.starting == "earliest":
            return {"log_offset": log.begin_offset}
        if self.options.starting == "latest":
            return {"log_offset": self._end(log, log.begin_offset, None)}
        return {"log_offset": int(self.options.starting)}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begin = start["log_offset"]
        commit_log = self._segments()
        if begin < commit_log.begin_offset:
            text = f"the log of {self.path} begins at offset {commit_log.begin_offset}, and the stream is at {begin}"
            if self.options.fail_on_data_loss:
                raise LogLost(f"{text}; set option failOnDataLoss to false to continue without it")
            log.warning("%s", text)
            begin = commit_log.begin_offset
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        end = self._end(commit_log, begin, max_bytes)
        if self._target is not None:
            end = min(end, self._target)
        return {"log_offset": max(end, start["log_offset"])}

    def prepareForTriggerAvailableNow(self) -> None:
        log = list_segments(self.path)  # what is there now: nobody waits for a broker to start
        self._target = self._end(log, log.begin_offset, None)

    def reportLatestOffset(self) -> dict[str, int] | None:
        log = self._segments()
        return {"log_offset": self._end(log, log.begin_offset, None)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        begin, end_offset = start["log_offset"], end["log_offset"]
        parts = []
        for segment in self._segments().segments:
            stop = min(segment.end, end_offset - segment.base)
            # A record that begins before the end is read whole: the end of a limited batch may lie inside of one.
            for position in range(max(begin - segment.base, 0), stop, self.split_size):
                parts.append(
                    LogPartition(
                        Split(segment, position, min(position + self.split_size, stop), at_record=position == 0)
                    )
                )
        return list(parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)  # our own type, see partitions()
        rows: Iterator[pa.RecordBatch] = self.rows.rows_of(partition.split)
        return rows

    def _segments(self) -> CommitLog:
        try:
            return list_segments(self.path)
        except StoreNotFound:
            return CommitLog([])  # a broker that is about to start creates it

    def _end(self, log: CommitLog, begin: int, max_bytes: int | None) -> int:
        """How far the log can be read, from `begin` on, and at most so many bytes."""
        last = _last_with_data(log.segments)
        if last is None:
            return begin
        limit = 1 << 62 if max_bytes is None else begin + max_bytes
        if limit < last.base:
            return limit
        position = max(begin, last.base, self._followed if last.base <= self._followed <= last.base + last.size else 0)
        position = _follow(last, position - last.base, min(limit - last.base, last.size)) + last.base
        self._followed = max(self._followed, position)
        return min(max(position, begin), limit)


def _last_with_data(segments: list[Segment]) -> Segment | None:
    """Brokers make files ahead; one that was begun has a record, or its head, at its start."""
    for segment in reversed(segments):
        if any(read_range(segment.path, 0, 8)):
            return segment
    return None


def _follow(segment: Segment, at: int, limit: int) -> int:
    """Where the records of a file that is being written end, from one of them on, at the first after `limit`.

    A record counts as soon as its head can be read: a broker writes the rest long before a task comes to read it.
    """
    while at < limit:
        stop = min(at + _WINDOW, segment.size)
        _, result = read_split(Split(segment, at, stop, at_record=True))
        if result.damages:
            return at + result.damages[0].at
        at += result.end
        if result.blank:
            return min(at + BLANK_SIZE, segment.size)
        if not len(result.places):
            break
    return at
