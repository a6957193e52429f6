"""Rows to messages: `write.format("rocketmq")` and `writeStream.format("rocketmq")`.

Columns, of which only `body` and, without the option `topic`, `topic` are needed:

    topic string, body binary or string, tags string, keys string or array<string>, properties map<string,string>,
    sharding_key string, delay int (a delay level)

Rows with a sharding key go to the queue that the key chooses, in their order; the others go from queue to queue. Rows
of a task that go to the same queue travel in batches; delayed ones travel alone.

Delivery is at least once: a task that Spark repeats sends its rows again. So each message carries in the property
`SPARK_ROW` what names its row: the query, the epoch, the partition and the row's number in it. A consumer that keeps
these keys (`once` in docs/howto/idempotence.md) takes each row once, provided that the query gives a repeated task the
same rows in the same order; without a shuffle by chance it does.

Java: none
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegralType, MapType, StringType, StructType

from rocketlet.client.errors import NoRoute, SendFailed, TimedOut, Unreachable
from rocketlet.client.facades.producers import Producer
from rocketlet.client.sending.batch_splitter import size_in_batch
from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message import Message, MessageQueue
from rocketlet.spark_jobs.rocketmq.options import BadOption, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("rocketlet.spark_jobs.rocketmq")

_COLUMNS: dict[str, Callable[[Any], bool]] = {
    "topic": lambda kind: isinstance(kind, StringType),
    "body": lambda kind: isinstance(kind, StringType | BinaryType),
    "tags": lambda kind: isinstance(kind, StringType),
    "keys": lambda kind: (
        isinstance(kind, StringType) or (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType))
    ),
    "properties": lambda kind: (
        isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    ),
    "sharding_key": lambda kind: isinstance(kind, StringType),
    "delay": lambda kind: isinstance(kind, IntegralType),
}
_KINDS = {
    "topic": "string", "body": "binary or string", "tags": "string", "keys": "string or array<string>",
    "properties": "map<string,string>", "sharding_key": "string", "delay": "int",
}  # fmt: skip

# Requests in flight. A batch is up to `batchBytes`, so this bounds the bytes too.
_MAX_IN_FLIGHT = 8
_LONGEST_PAUSE = 2.0


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises BadOption for a column that no message has, that has another type, or that is missing."""
    for column in schema.fields:
        if column.name not in _COLUMNS:
            raise BadOption(f"column {column.name} has no place in a message; there are {', '.join(_COLUMNS)}")
        if not _COLUMNS[column.name](column.dataType):
            kind = column.dataType.simpleString()
            raise BadOption(f"column {column.name} is {kind}; {_KINDS[column.name]} is needed")
    if "body" not in schema.names:
        raise BadOption("the rows have no column body")
    if not options.topic and "topic" not in schema.names:
        raise BadOption('name the topic: option("topic", "Orders"), or a column topic')


@dataclass
class Sent(WriterCommitMessage):
    """How many messages a task has sent."""

    messages: int


class RowsToBatch(DataSourceArrowWriter):
    """The writer of `write`. The rows of one write share one name in all tasks and their repetitions."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _send(self.options, f"{self.query}/0", iterator)


class RowsToStream(DataSourceStreamArrowWriter):
    """The writer of `writeStream`: the checkpoint names the query, and the micro-batch is the epoch."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None  # this is called in a task only
        query = context.getLocalProperty("sql.streaming.queryId")
        epoch = context.getLocalProperty("streaming.sql.batchId")
        return _send(self.options, f"{query}/{epoch}", iterator)


def _send(options: WriteOptions, epoch: str, rows: Iterator[pa.RecordBatch]) -> Sent:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    producer = Producer(options.group, **options.connection.settings())
    with producer, _Sending(producer, options) as sending:
        number = 0
        for batch in rows:
            for message in _messages(batch, options.topic):
                message.properties[options.row_key] = f"{epoch}/{partition}/{number}"
                sending.add(message)
                number += 1
        sending.finish()
    return Sent(number)


@dataclass(slots=True)
class _Open:
    """A batch that is being filled."""

    messages: list[Message] = field(default_factory=list)
    size: int = 0


class _Sending:
    """Fills one batch for each queue, and keeps a bounded number of requests in flight.

    A batch with sharding keys waits until the previous one to the same queue was stored, which keeps its order.
    """

    def __init__(self, producer: Producer, options: WriteOptions) -> None:
        self._producer = producer
        self._options = options
        self._pool = ThreadPoolExecutor(_MAX_IN_FLIGHT, "rocketlet-spark-sink")
        self._open: dict[tuple[str, MessageQueue | None], _Open] = {}
        self._in_flight: deque[Future[None]] = deque()
        self._previous: dict[MessageQueue, Future[None]] = {}
        self._queues: dict[str, list[MessageQueue]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, message: Message) -> None:
        """Takes a message. Raises what an earlier send ended with."""
        queue = self._queue_of(message)
        key = (message.topic, queue)
        if message.delay_level:
            self._flush(key)
            self._launch([message], queue)
            return
        size = size_in_batch(message)
        batch = self._open.setdefault(key, _Open())
        if batch.messages and batch.size + size > self._options.batch_bytes:
            self._flush(key)
            batch = self._open.setdefault(key, _Open())
        batch.messages.append(message)
        batch.size += size

    def finish(self) -> None:
        """Returns when all messages are stored. Raises what a send ended with."""
        for key in list(self._open):
            self._flush(key)
        while self._in_flight:
            self._in_flight.popleft().result()

    def _queue_of(self, message: Message) -> MessageQueue | None:
        if message.sharding_key is None:
            return None
        if message.topic not in self._queues:
            self._queues[message.topic] = self._producer.publish_queues(message.topic)
        queues = self._queues[message.topic]
        return queues[string_hash(message.sharding_key) % len(queues)]

    def _flush(self, key: tuple[str, MessageQueue | None]) -> None:
        batch = self._open.pop(key, None)
        if batch is not None:
            self._launch(batch.messages, key[1])

    def _launch(self, messages: list[Message], queue: MessageQueue | None) -> None:
        while len(self._in_flight) >= _MAX_IN_FLIGHT:
            self._in_flight.popleft().result()
        if queue is not None and (previous := self._previous.get(queue)) is not None:
            previous.result()
        sent = self._pool.submit(self._send, messages, queue)
        self._in_flight.append(sent)
        if queue is not None:
            self._previous[queue] = sent

    def _send(self, messages: list[Message], queue: MessageQueue | None) -> None:
        """Send until it is stored, for `retrySeconds`: a broker may restart, or another take its place."""
        give_up = time.monotonic() + self._options.retry_seconds
        pause = 0.1
        while True:
            try:
                if len(messages) == 1:
                    self._producer.send(messages[0], queue=queue)
                else:
                    self._producer.send_batch(messages, queue=queue)
                return
            except (SendFailed, NoRoute, Unreachable, TimedOut) as error:
                if time.monotonic() + pause > give_up:
                    raise
                log.warning("%d messages are sent again in %.1f s: %s", len(messages), pause, error)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _messages(rows: pa.RecordBatch, topic: str) -> Iterator[Message]:
    """The rows as messages. A null body is empty, and other nulls are absent."""
    names = rows.schema.names
    columns = {name: rows.column(name).to_pylist() if name in names else None for name in _COLUMNS}

    def value(name: str, row: int) -> Any:
        column = columns[name]
        return None if column is None else column[row]

    for row in range(rows.num_rows):
        body, keys = value("body", row), value("keys", row)
        yield Message(
            topic=value("topic", row) or topic,
            body=body.encode() if isinstance(body, str) else bytes(body or b""),
            tags=value("tags", row),
            keys=[keys] if isinstance(keys, str) else [key for key in keys or () if key is not None],
            delay_level=value("delay", row) or 0,
            properties={name: text for name, text in value("properties", row) or () if text is not None},
            sharding_key=value("sharding_key", row),
        )
