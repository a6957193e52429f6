"""The options of the format "rocketmq", checked where they are given. docs/spark.md explains each.

The names are those of Kafka's connector wherever the meaning is the same. An unknown name is an error, since a misspelt
`failOnDataLoss` would otherwise be found out by lost data.

Java: none
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rocketlet.client import validators
from rocketlet.client.config import ClientConfig
from rocketlet.client.consuming.selector import Selection, Sql, subscription_of
from rocketlet.client.errors import ClientError
from rocketlet.common.errors import RocketletError
from rocketlet.spark_jobs.rocketmq.queue_offsets import BadOffsets, Offsets, parse

DEFAULT_GROUP = "SPARK_READER"
DEFAULT_WRITER = "SPARK_WRITER"

# Kafka's connector takes all there are; a task of a million messages is retried in seconds.
_MAX_PER_TASK = 1_000_000


class BadOption(RocketletError):
    """An option that is not known or cannot be used; the text says which, and what it may be."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where reading starts or ends: `earliest`, `latest`, a time in milliseconds, or offsets by queue."""

    kind: str
    time: int = 0
    offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Connection:
    """How brokers are reached; the same for reading and writing, and sent to the executors."""

    namesrv: str
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_server_name: str = ""

    def config(self) -> ClientConfig:
        """The client's settings."""
        return ClientConfig(**self.settings())

    def settings(self) -> dict[str, Any]:
        """The same by name, for a producer."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `spark.read` and `spark.readStream`."""

    connection: Connection
    topics: tuple[str, ...]
    pattern: str
    selection: Selection
    group: str
    commits: bool
    start: Moment
    end: Moment
    max_offsets_per_trigger: int | None
    min_partitions: int
    max_records_per_partition: int
    fail_on_data_loss: bool
    inflate: bool
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `write` and `writeStream`."""

    connection: Connection
    topic: str
    group: str
    batch_bytes: int
    row_key: str
    retry_seconds: float


_CONNECTION = {
    "namesrv": "namesrv",
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
    "tlsCaFile": "tls_ca_file",
    "tlsCertFile": "tls_cert_file",
    "tlsKeyFile": "tls_key_file",
    "tlsServerName": "tls_server_name",
}
_READING = [
    "topics", "topicsPattern", "tags", "sql", "group", "startingOffsets", "startingTimestamp", "endingOffsets",
    "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "inflate",
    "retrySeconds",
]  # fmt: skip
_WRITING = ["topic", "group", "batchBytes", "rowKey", "retrySeconds"]
# Spark's own, which it hands on to the source or sink.
_SPARKS = {"path", "checkpointlocation", "queryname", "outputmode", "__generated_query_name"}


class _GivenOptions:
    """The options as Spark hands them over, without regard to upper and lower case."""

    def __init__(self, given: Mapping[str, str], known_names: list[str]) -> None:
        self._values = {str(name).lower(): str(value) for name, value in given.items()}
        names = {name.lower(): name for name in [*_CONNECTION, "tls", *known_names]}
        for name in self._values:
            if name not in names and name not in _SPARKS:
                near = difflib.get_close_matches(name, names, 1)
                meant = f"; did you mean {names[near[0]]}?" if near else f"; there are {', '.join(names.values())}"
                raise BadOption(f"option {name} is not known{meant}")

    def text(self, name: str, otherwise: str = "") -> str:
        return self._values.get(name.lower(), otherwise)

    def number(self, name: str, otherwise: int, least: int = 1, most: int = 1 << 62) -> int:
        text = self.text(name, str(otherwise))
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise BadOption(f"option {name}={text!r}: a whole number of at least {least} is needed")
        return int(text)

    def flag(self, name: str, otherwise: bool) -> bool:
        text = self.text(name, str(otherwise)).lower()
        if text not in ("true", "false"):
            raise BadOption(f"option {name}={text!r}: it may be true or false")
        return text == "true"

    def connection(self) -> Connection:
        if not self.text("namesrv"):
            raise BadOption('name the name servers: option("namesrv", "host:9876;host:9876")')
        tls = self.flag("tls", bool(self.text("tlsCaFile")))
        return Connection(tls=tls, **{field: self.text(name) for name, field in _CONNECTION.items()})

    def retry_seconds(self) -> float:
        return float(self.number("retrySeconds", 60, least=0, most=86_400))

    def group(self, otherwise: str) -> str:
        group = self.text("group", otherwise)
        try:
            validators.check_group(group)
        except ClientError as error:
            raise BadOption(f"option group={group!r}: {error}") from None
        return group


def read_options(values: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a table or stream. Raises BadOption."""
    options = _GivenOptions(values, _READING)
    topics = tuple(name.strip() for name in options.text("topics", options.text("path")).split(",") if name.strip())
    pattern = options.text("topicsPattern")
    if bool(topics) == bool(pattern):
        raise BadOption('name what to read by one of option("topics", "A,B") and option("topicsPattern", "orders-.*")')
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f"option topicsPattern={pattern!r} is no regular expression: {error}") from None
    for topic in topics:
        try:
            validators.check_topic(topic)
        except ClientError as error:
            raise BadOption(f"option topics: {error}") from None
    end = _moment(options, "ending", "latest")
    if streaming and (options.text("endingOffsets") or options.text("endingTimestamp")):
        raise BadOption("a stream has no end: endingOffsets and endingTimestamp are for spark.read")
    limit = options.number("maxOffsetsPerTrigger", 0, least=0) or None
    return ReadOptions(
        connection=options.connection(),
        topics=topics,
        pattern=pattern,
        selection=_selection(options),
        group=options.group(DEFAULT_GROUP),
        commits=bool(options.text("group")),
        start=_moment(options, "starting", "latest" if streaming else "earliest"),
        end=end,
        max_offsets_per_trigger=limit,
        min_partitions=options.number("minPartitions", 1),
        max_records_per_partition=options.number("maxRecordsPerPartition", _MAX_PER_TASK),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        inflate=options.flag("inflate", False),
        retry_seconds=options.retry_seconds(),
    )


def write_options(values: Mapping[str, str]) -> WriteOptions:
    """The options of a sink. Raises BadOption."""
    options = _GivenOptions(values, _WRITING)
    topic = options.text("topic", options.text("path"))
    if topic:
        try:
            validators.check_topic(topic)
        except ClientError as error:
            raise BadOption(f"option topic: {error}") from None
    return WriteOptions(
        connection=options.connection(),
        topic=topic,
        group=options.group(DEFAULT_WRITER),
        batch_bytes=options.number("batchBytes", 256 << 10, least=1, most=4 << 20),
        row_key=options.text("rowKey", "SPARK_ROW"),
        retry_seconds=options.retry_seconds(),
    )


def _selection(options: _GivenOptions) -> Selection:
    tags, sql = options.text("tags"), options.text("sql")
    if tags and sql:
        raise BadOption("give one of the options tags and sql: brokers apply one filter to a pull")
    selection: Selection = Sql(sql) if sql else tags or "*"
    try:
        subscription_of("T", selection, 0)
    except ClientError as error:
        raise BadOption(f"option {'sql' if sql else 'tags'}: {error}") from None
    return selection


def _moment(options: _GivenOptions, prefix: str, otherwise: str) -> Moment:
    offsets, time = options.text(f"{prefix}Offsets"), options.text(f"{prefix}Timestamp")
    if offsets and time:
        raise BadOption(f"give one of the options {prefix}Offsets and {prefix}Timestamp")
    if time:
        return Moment("time", time=_milliseconds(f"{prefix}Timestamp", time))
    text = offsets or otherwise
    if text in ("earliest", "latest"):
        return Moment(text)
    try:
        return Moment("offsets", offsets=parse(text))
    except BadOffsets as error:
        raise BadOption(f"option {prefix}Offsets: {error}; or write earliest or latest") from None


def _milliseconds(name: str, text: str) -> int:
    """Milliseconds since 1970, or a moment as ISO 8601 has it; without a zone in UTC."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"option {name}={text!r}: write milliseconds since 1970, or 2026-11-18T12:00") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
