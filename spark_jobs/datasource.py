"""`spark.read.format("commitlog").load(directory)`: the log of a store as a table.

One row a message (`message_columns` lists the columns; a narrower schema decodes only what it names), or with
`option("table", "damage")` one row a stretch that cannot be read. Options:

    table          messages (default) or damage
    split_size     bytes that one task reads at once, default 64 MiB; files are split inside
    partitions     at most this many tasks instead, whatever the size
    inflate        true: bodies that were sent compressed come plain
    unwrap         true: an inner batch (5.x) becomes one row a message
    tail           auto (default), stop, through: what to do after a damage of the last segment (see `commit_log`)
    time_margin_s  a segment is skipped by time only if it misses the wanted range by more than this, default 300

`spark.readStream` follows the log (`log_stream`), and has these beside split_size and inflate:

    starting            earliest, latest (default) or a log offset, where a new query begins
    maxBytesPerTrigger  bytes of the log that one micro-batch reads at the most
    failOnDataLoss      true (default): files that went before they were read end the query

The store may be live: what lies before the log's good end when the query is planned is read, and no more.

Java: none; the tools have `mqadmin` against a broker only
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rocketlet.common.errors import RocketletError
from rocketlet.spark_jobs.commit_log import (
    DEFAULT_SPLIT,
    CommitLog,
    LogDamage,
    Split,
    find_commit_log,
    grouped,
    read_split,
)
from rocketlet.spark_jobs.log_damage import damages_of, in_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.log_stream import StreamOptions
    from rocketlet.spark_jobs.message_columns import MessageBatch
    from rocketlet.spark_jobs.pushdown import Condition

log = logging.getLogger("rocketlet.spark_jobs.datasource")

FORMAT = "commitlog"
DAMAGE_SCHEMA = "file string, log_offset long, size long, reason string"
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 65_536


class BadOption(RocketletError):
    """An option of the data source that it does not know or cannot use; the text says which and what it may be."""


def register(session: SparkSession) -> None:
    """Make the format known to a session, and let it push filters down."""
    session.dataSource.register(CommitLogSource)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@dataclass(slots=True)
class Options:
    path: str
    table: str = "messages"
    split_size: int = DEFAULT_SPLIT
    partitions: int = 0
    inflate: bool = False
    unwrap: bool = False
    tail: str = "auto"
    time_margin_s: int = 300


def parse_options(values: Any) -> Options:
    """Raises BadOption."""
    path = values.get("path")
    if not path:
        raise BadOption('name the store: spark.read.format("commitlog").load(directory)')
    options = Options(path)
    for name, allowed in (("table", ("messages", "damage")), ("tail", ("auto", "stop", "through"))):
        value = values.get(name, getattr(options, name))
        if value not in allowed:
            raise BadOption(f"option {name}={value!r}: it may be {', '.join(allowed)}")
        setattr(options, name, value)
    for name in ("split_size", "partitions", "time_margin_s"):
        text = str(values.get(name, getattr(options, name)))
        if not text.isdigit() or (name == "split_size" and int(text) < 1):
            raise BadOption(f"option {name}={text!r}: a number is needed")
        setattr(options, name, int(text))
    for name in ("inflate", "unwrap"):
        text = str(values.get(name, "false")).lower()
        if text not in ("true", "false"):
            raise BadOption(f"option {name}={text!r}: it may be true or false")
        setattr(options, name, text == "true")
    return options


def stream_options(values: Any) -> StreamOptions:
    """The options that only a stream has. Raises BadOption."""
    from rocketlet.spark_jobs.log_stream import StreamOptions

    starting = str(values.get("starting", "latest"))
    if starting not in ("earliest", "latest") and not (starting.isascii() and starting.isdigit()):
        raise BadOption(f"option starting={starting!r}: it may be earliest, latest or a log offset")
    limit = str(values.get("maxBytesPerTrigger", "0"))
    if not (limit.isascii() and limit.isdigit()):
        raise BadOption(f"option maxBytesPerTrigger={limit!r}: a number is needed")
    fails = str(values.get("failOnDataLoss", "true")).lower()
    if fails not in ("true", "false"):
        raise BadOption(f"option failOnDataLoss={fails!r}: it may be true or false")
    return StreamOptions(starting, int(limit) or None, fails == "true")


class CommitLogSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        if parse_options(self.options).table == "damage":
            return DAMAGE_SCHEMA
        from rocketlet.spark_jobs.message_columns import COLUMNS

        return ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS.values())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        if options.table == "damage":
            return DamageReader(options)
        check_schema(schema)
        return MessageReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from rocketlet.spark_jobs.log_stream import LogStream

        options = parse_options(self.options)
        if options.table != "messages":
            raise BadOption("a stream has messages only; read the damages with spark.read")
        check_schema(schema)
        rows = MessageReader(options, schema)
        return LogStream(options.path, options.split_size, stream_options(self.options), schema, rows)


def check_schema(schema: StructType) -> None:
    """Raises BadOption where a schema names a column that no message has."""
    from rocketlet.spark_jobs.message_columns import COLUMNS

    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise BadOption(f"the schema names {', '.join(unknown)}; a message row has {', '.join(COLUMNS)}")


@dataclass
class SplitsPartition(InputPartition):
    """What one task reads."""

    splits: tuple[Split, ...]
    known_damages: tuple[LogDamage, ...] = ()


def _partitions(splits: list[Split], options: Options) -> list[InputPartition]:
    return [SplitsPartition(group) for group in grouped(splits, options.partitions or len(splits))]


def _splits(log: CommitLog, options: Options) -> list[Split]:
    if options.partitions:
        return log.splits(max(-(-log.bytes // options.partitions), 1))
    return log.splits(options.split_size)


class MessageReader(DataSourceReader):
    """Rows of messages."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.conditions: list[Condition] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        from rocketlet.spark_jobs.pushdown import condition_of

        for spark_filter in filters:
            condition = condition_of(spark_filter)
            # An inner batch has one queue offset in the log and many in its rows: leave those filters to Spark.
            if condition is None or self.options.unwrap:
                yield spark_filter
            else:
                self.conditions.append(condition)

    def partitions(self) -> list[InputPartition]:
        from rocketlet.spark_jobs.pushdown import wanted_splits

        log = find_commit_log(self.options.path, tail=self.options.tail)
        _warn(log.damages)
        log.segments = self._wanted_segments(log)
        splits = wanted_splits(_splits(log, self.options), self.conditions)
        return _partitions(splits, self.options) or [SplitsPartition(())]

    def _wanted_segments(self, log: CommitLog) -> list[Any]:
        """Without the segments that end before, or begin after, the wanted times."""
        from rocketlet.spark_jobs.commit_log import first_store_time
        from rocketlet.spark_jobs.pushdown import bounds

        time_bounds = bounds(self.conditions, "store_time")
        if time_bounds.low is None and time_bounds.high is None:
            return log.segments
        times = [first_store_time(segment) for segment in log.segments]
        margin = self.options.time_margin_s * 1_000_000
        remaining = []
        for number, segment in enumerate(log.segments):
            begin = times[number]
            end = times[number + 1] if number + 1 < len(times) else None
            first = -(1 << 62) if begin is None else begin * 1000 - margin
            last = 1 << 62 if end is None else end * 1000 + margin
            if not time_bounds.misses(first, last):
                remaining.append(segment)
        return remaining

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitsPartition)  # our own type, see partitions()
        for split in partition.splits:
            yield from self.rows_of(split)

    def rows_of(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        from rocketlet.spark_jobs.arrow_schema import as_batch, batch_schema
        from rocketlet.spark_jobs.message_columns import MessageBatch
        from rocketlet.spark_jobs.pushdown import filtered

        schema = batch_schema(self.schema)
        data, result = read_split(split)
        _warn([in_log(split, damage) for damage in result.damages])
        batch = MessageBatch(data, result.heads_in(data), inflate=self.options.inflate)
        batch = filtered(batch, self.conditions)
        for part in _parts(batch):
            yield as_batch(part.unwrapped() if self.options.unwrap else part, schema)


def _parts(batch: MessageBatch) -> Iterator[MessageBatch]:
    """A batch in pieces small enough for the JVM."""
    import numpy as np

    if not len(batch):
        return
    sizes = np.cumsum(batch.heads.size.astype(np.int64))
    begin = 0
    while begin < len(batch):
        size_before = sizes[begin - 1] if begin else 0
        end = int(np.searchsorted(sizes, size_before + _BATCH_BYTES, "right"))
        end = min(max(end, begin + 1), begin + _BATCH_ROWS)
        yield batch if end - begin == len(batch) else batch.where(np.arange(begin, end))
        begin = end


class DamageReader(DataSourceReader):
    """Rows of damages: bodies that fail their CRC, and all that is no record."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        log = find_commit_log(self.options.path, tail=self.options.tail)
        parts = _partitions(_splits(log, self.options), self.options)
        return [*parts, SplitsPartition((), tuple(log.damages))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, int, str]]:
        assert isinstance(partition, SplitsPartition)  # our own type, see partitions()
        for log_damage in partition.known_damages:
            yield log_damage.path, log_damage.log_offset, log_damage.size, log_damage.reason
        for split in partition.splits:
            for damage in damages_of(split):
                yield damage.path, damage.log_offset, damage.size, damage.reason


def _warn(damages: list[LogDamage]) -> None:
    for damage in damages:
        log.warning(
            "%s: %d bytes at log offset %d cannot be read: %s (option table=damage lists all)",
            damage.path, damage.size, damage.log_offset, damage.reason,
        )  # fmt: skip
