"""`format("rocketmq")`: the topics of running brokers, as a table, as a stream, and as a place to write to.

    spark.readStream.format("rocketmq").option("namesrv", "host:9876").option("topics", "Orders").load()

A row has the columns of `format("commitlog")`. The driver plans which offsets of which queue a job or micro-batch
reads; each task then pulls its own range from the broker. A stream's checkpoint holds the offsets, so a batch that is
repeated reads the same messages again.

Java: none; RocketMQ's own connector (rocketmq-spark) ended with Spark 2
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketlet.client.consuming.selector import subscription_of
from rocketlet.client.errors import ClientError
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import is_system_topic
from rocketlet.spark_jobs.datasource import check_schema
from rocketlet.spark_jobs.rocketmq.broker_reader import BrokerReader
from rocketlet.spark_jobs.rocketmq.options import BadOption, Moment, ReadOptions, read_options, write_options
from rocketlet.spark_jobs.rocketmq.pulled_batches import DataLost, batches
from rocketlet.spark_jobs.rocketmq.queue_offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    cut,
    from_state,
    limited,
    ranges_between,
    to_state,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.pushdown import Condition
    from rocketlet.spark_jobs.rocketmq.sink import RowsToBatch, RowsToStream

log = logging.getLogger("rocketlet.spark_jobs.rocketmq")

FORMAT = "rocketmq"


def register(session: SparkSession) -> None:
    """Make the format known to a session."""
    session.dataSource.register(RocketMQSource)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class RocketMQSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        from rocketlet.spark_jobs.message_columns import COLUMNS

        return ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS.values())

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        return TopicReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_schema(schema)
        return TopicStream(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> RowsToBatch:
        from rocketlet.spark_jobs.rocketmq.sink import RowsToBatch, check_columns

        if overwrite:
            raise BadOption('messages cannot be overwritten: write with mode("append")')
        options = write_options(self.options)
        check_columns(schema, options)
        return RowsToBatch(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsToStream:
        from rocketlet.spark_jobs.rocketmq.sink import RowsToStream, check_columns

        options = write_options(self.options)
        check_columns(schema, options)
        return RowsToStream(options)


@dataclass
class RangePartition(InputPartition):
    """What one task pulls."""

    wanted: OffsetRange


class _Topics:
    """What reading a table and reading a stream share."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.conditions: list[Condition] = []

    def _reader(self) -> BrokerReader:
        return BrokerReader(self.options.connection.config(), self.options.retry_seconds)

    def _queues(self, reader: BrokerReader) -> list[MessageQueue]:
        """The queues of the topics that are wanted. A pattern leaves out the system's own topics.

        It takes retry topics and dead letters only where it begins with their percent sign.
        """
        if self.options.topics:
            return reader.queues(self.options.topics)
        pattern = re.compile(self.options.pattern)
        with_percent = self.options.pattern.startswith("%")
        return reader.queues(
            topic
            for topic in reader.topics()
            if pattern.fullmatch(topic) and not is_system_topic(topic) and topic.startswith("%") == with_percent
        )

    def _offsets(self, reader: BrokerReader, queues: list[MessageQueue], moment: Moment) -> Offsets:
        """The offsets that a moment means. A queue that the user's offsets leave out begins or ends at the latest."""
        if moment.kind == "earliest":
            return reader.min_offsets(queues)
        if moment.kind == "latest":
            return reader.max_offsets(queues)
        if moment.kind == "time":
            return reader.offsets_at(queues, moment.time)
        chosen_offsets = moment.offsets
        if unknown := sorted(set(chosen_offsets) - set(queues)):
            raise BadOption(f"the offsets name queues that no broker serves: {', '.join(map(str, unknown))}")
        earliest = reader.min_offsets([queue for queue in queues if chosen_offsets.get(queue) == EARLIEST])
        latest = reader.max_offsets([queue for queue in queues if chosen_offsets.get(queue, LATEST) == LATEST])
        return chosen_offsets | earliest | latest

    def _partitions(self, ranges: list[OffsetRange]) -> list[InputPartition]:
        pieces = cut(ranges, self.options.min_partitions, self.options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in a task."""
        from rocketlet.spark_jobs.arrow_schema import as_batch, batch_schema
        from rocketlet.spark_jobs.pushdown import filtered

        assert isinstance(partition, RangePartition)  # our own type, see _partitions()
        options, wanted = self.options, partition.wanted
        schema = batch_schema(self.schema)
        subscription = subscription_of(wanted.queue.topic, options.selection, 0)
        with self._reader() as reader:
            for batch in batches(
                reader, options.group, subscription, wanted, fail_on_data_loss=options.fail_on_data_loss,
                inflate=options.inflate, retry_seconds=options.retry_seconds,
            ):  # fmt: skip
                batch = filtered(batch, self.conditions)
                if len(batch):
                    yield as_batch(batch, schema)


class TopicReader(_Topics, DataSourceReader):
    """The messages from a start to an end that is found when the query begins."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        from rocketlet.spark_jobs.pushdown import condition_of

        for spark_filter in filters:
            condition = condition_of(spark_filter)
            if condition is None:
                yield spark_filter
            else:
                self.conditions.append(condition)

    def partitions(self) -> list[InputPartition]:
        from rocketlet.spark_jobs.pushdown import bounds

        with self._reader() as reader:
            queues = self._queues(reader)
            start = self._offsets(reader, queues, self.options.start)
            end = self._offsets(reader, queues, self.options.end)
        offset_bounds = bounds(self.conditions, "queue_offset")
        for queue in queues:
            start[queue] = max(start[queue], start[queue] if offset_bounds.low is None else offset_bounds.low)
            end[queue] = min(end[queue], end[queue] if offset_bounds.high is None else offset_bounds.high + 1)
        return self._partitions(ranges_between(start, end)) or [RangePartition(OffsetRange(_NOWHERE, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition) and not len(partition.wanted):
            return iter(())
        return super().read(partition)


class TopicStream(_Topics, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches. The driver keeps one connection for as long as the query runs."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._open: BrokerReader | None = None
        self._target: Offsets | None = None  # of Trigger.AvailableNow
        self._reported: Offsets = {}

    def _driver(self) -> BrokerReader:
        if self._open is None:
            self._open = self._reader().__enter__()
        return self._open

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}  # executors make a connection of their own

    def initialOffset(self) -> dict[str, Any]:
        reader = self._driver()
        return to_state(self._offsets(reader, self._queues(reader), self.options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: as far as there are messages, or as the limit allows.

        A queue that appeared since begins at its oldest message. One that has no broker for the moment stays where it
        is, and so does one whose end is before the start, unless that is to count as lost.
        """
        begin = from_state(start)
        self._report(begin)  # Spark calls `commit` only once there is a next batch
        reader = self._driver()
        end = begin | self._ends(reader, list(begin))
        new_queues = [queue for queue in end if queue not in begin]
        if new_queues:
            log.info("%d queues have appeared: %s", len(new_queues), ", ".join(map(str, new_queues)))
        begin |= reader.min_offsets(new_queues)
        for queue, first in begin.items():
            if end[queue] < first:
                text = f"{queue}: the stream is at offset {first}, and the queue ends at {end[queue]}"
                if self.options.fail_on_data_loss:
                    raise DataLost(f"{text}; set option failOnDataLoss to false to continue from its end")
                log.warning("%s", text)
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_state(end)

    def _ends(self, reader: BrokerReader, known_queues: list[MessageQueue]) -> Offsets:
        """The ends of all queues whose broker answers; with Trigger.AvailableNow as they were when the query began."""
        if self._target is not None:
            return self._target
        try:
            queues = self._queues(reader)
        except ClientError as error:
            log.warning("the stream goes on with the queues that it knows: %s", error)
            queues = known_queues
        return reader.max_offsets_known(queues)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self._driver(), [])

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_state(self._ends(self._driver(), []))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, end_offsets = from_state(start), from_state(end)
        new_queues = [queue for queue in end_offsets if queue not in begin]
        begin |= self._driver().min_offsets(new_queues)
        return self._partitions(ranges_between(begin, end_offsets))

    def commit(self, end: dict[str, Any]) -> None:
        self._report(from_state(end))

    def _report(self, offsets: Offsets) -> None:
        """The checkpoint holds the progress; a configured group gets it too, so that its lag can be seen."""
        if self.options.commits and offsets != self._reported:
            try:
                self._driver().commit(self.options.group, offsets)
            except ClientError as error:
                log.warning("the progress of group %s is not stored: %s", self.options.group, error)
            self._reported = offsets

    def stop(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


_NOWHERE = MessageQueue("", "", 0)
