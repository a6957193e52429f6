"""The log as a stream: it ends where records end, continues when they do, and skips damage as a batch read does."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

from rocketlet.common.host import pack_host
from rocketlet.common.message_record import Record, encode
from rocketlet.spark_jobs.commit_log import find_commit_log, read_split
from rocketlet.spark_jobs.datasource import BadOption, stream_options
from rocketlet.spark_jobs.files import StoreNotFound
from rocketlet.spark_jobs.log_stream import LogLost, LogPartition, LogStream, StreamOptions
from tests.spark_jobs.conftest import CASES, DAMAGED
from tests.support.java_programs import JavaPrograms, Missing
from tests.support.killing import Sending
from tests.support.programs import name_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

FILE = 4096
SPLIT = 1500


class Log:
    """A log written like a broker's: records in files of zeros, blanks at their ends."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "commitlog"
        self.folder.mkdir(parents=True)
        self.end = 0
        self.offsets: list[int] = []

    def append(self, body: bytes) -> int:
        record = self._record(body)
        room = FILE - self.end % FILE
        if room < len(record) + 8:
            self.write(self.end, room.to_bytes(4, "big") + bytes.fromhex("cbd43194"))
            self.end += room
            record = self._record(body)
        self.write(self.end, record)
        self.offsets.append(self.end)
        self.end += len(record)
        return self.offsets[-1]

    def _record(self, body: bytes) -> bytes:
        host = pack_host("127.0.0.1", 1)
        return encode(Record("T", 0, len(self.offsets), self.end, body, b"", 0, 0, 1, host, 1, host, 0, 0))

    def write(self, offset: int, data: bytes) -> None:
        path = self.folder / f"{offset // FILE * FILE:020d}"
        if not path.exists():
            path.write_bytes(bytes(FILE))
        with path.open("r+b") as file:
            file.seek(offset % FILE)
            file.write(data)


def stream_of(root: Path, starting: str = "earliest", max_bytes: int | None = None, *, fails: bool = True) -> LogStream:
    return LogStream(str(root), SPLIT, StreamOptions(starting, max_bytes, fails), StructType(), None)


def read(stream: LogStream, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The log offsets of the records between two places of a stream."""
    found: list[int] = []
    for partition in stream.partitions(start, end):
        assert isinstance(partition, LogPartition)
        data, records = read_split(partition.split)
        found += records.heads_in(data).log_offset.tolist()
    return found


ALL = ReadAllAvailable()


def test_a_stream_follows_records_across_files(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path)
    at, seen = stream.initialOffset(), []
    for number in range(40):
        log.append(b"x" * (number * 37 % 900))
        then = stream.latestOffset(at, ALL)
        seen += read(stream, at, then)
        assert seen == log.offsets
        at = then
    assert stream.latestOffset(at, ALL) == at
    assert read(stream, stream.initialOffset(), at) == log.offsets


def test_a_limit_is_kept_and_nothing_is_skipped(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path)
    for number in range(60):
        log.append(b"x" * (number * 53 % 700))
    at, seen, rounds = stream.initialOffset(), [], 0
    while (then := stream.latestOffset(at, ReadMaxBytes(1000))) != at:
        assert then["log_offset"] <= at["log_offset"] + 1000
        seen += read(stream, at, then)
        at, rounds = then, rounds + 1
    assert seen == log.offsets
    assert rounds >= log.end // 1000


def test_a_record_larger_than_the_limit_does_not_stop_a_stream(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path)
    for _ in range(3):
        log.append(b"x" * 3000)
    at, seen = stream.initialOffset(), []
    for _ in range(200):
        then = stream.latestOffset(at, ReadMaxBytes(100))
        seen += read(stream, at, then)
        at = then
    assert seen == log.offsets


def test_an_empty_store_and_a_missing_folder_are_waited_for(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "store", "latest")
    at = stream.initialOffset()
    assert at == stream.latestOffset(at, ALL) == {"log_offset": 0}
    log = Log(tmp_path / "store")
    assert stream.latestOffset(at, ALL) == at
    log.append(b"first")
    assert read(stream, at, stream.latestOffset(at, ALL)) == [0]


def test_a_stream_waits_at_an_invalid_record_until_the_log_continues(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path)
    log.append(b"good")
    damaged = log.append(b"damaged" * 20)
    log.append(b"after")
    log.write(damaged + 4, bytes(4))  # no magic
    at = stream.initialOffset()
    then = stream.latestOffset(at, ALL)
    assert then == {"log_offset": damaged}
    while log.end < FILE + 200:
        log.append(b"x" * 300)
    later = stream.latestOffset(then, ALL)
    assert read(stream, at, then) + read(stream, then, later) == [one for one in log.offsets if one != damaged]


def test_starting_at_latest_skips_existing_records(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path, "latest")
    log.append(b"before")
    at = stream.initialOffset()
    new = log.append(b"after")
    assert read(stream, at, stream.latestOffset(at, ALL)) == [new]


def test_available_now_ends_at_the_end_when_the_query_begins(tmp_path: Path) -> None:
    log, stream = Log(tmp_path), stream_of(tmp_path)
    log.append(b"before")
    stream.prepareForTriggerAvailableNow()
    log.append(b"after")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert read(stream, stream.initialOffset(), end) == log.offsets[:1]
    assert stream.latestOffset(end, ALL) == end


def test_files_deleted_before_they_were_read_are_lost_data(tmp_path: Path) -> None:
    log = Log(tmp_path)
    while log.end < 2 * FILE:
        log.append(b"x" * 500)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(LogLost, match="begins at offset 4096, and the stream is at 0"):
        stream_of(tmp_path).latestOffset({"log_offset": 0}, ALL)
    lenient = stream_of(tmp_path, fails=False)
    end = lenient.latestOffset({"log_offset": 0}, ALL)
    assert read(lenient, {"log_offset": 0}, end) == [one for one in log.offsets if one >= FILE]


@pytest.mark.parametrize("case", [*CASES, *(f"damaged/{name}" for name in DAMAGED)])
def test_recorded_stores_stream_as_they_are_read(case: str, store_of: Callable[[str], Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(store_of(case), store)
    (store / "abort").touch()  # open, as a stream finds it
    batch = [
        offset
        for split in find_commit_log(str(store)).splits(SPLIT)
        for data, found in [read_split(split)]
        for offset in found.heads_in(data).log_offset.tolist()
    ]
    stream = LogStream(str(store), 1 << 16, StreamOptions("earliest", None, True), StructType(), None)
    at = stream.initialOffset()
    assert read(stream, at, stream.latestOffset(at, ALL)) == batch


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"starting": "first"}, "earliest, latest or a log offset"),
        ({"maxBytesPerTrigger": "-1"}, "a number is needed"),
        ({"failOnDataLoss": "perhaps"}, "it may be true or false"),
    ],
)
def test_unusable_stream_options_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        stream_options(given)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_follows_a_log_into_files(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(tmp_path / "store")

    def run() -> int:
        source = spark.readStream.format("commitlog").option("starting", "earliest").option("maxBytesPerTrigger", 4000)
        query = (
            source.load(str(tmp_path / "store")).select("log_offset", "body").writeStream.format("parquet")
            .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(row.log_offset for row in rows) == log.offsets
        return len(rows)

    for _ in range(20):
        log.append(b"x" * 300)
    assert run() == 20
    for _ in range(5):
        log.append(b"y")
    assert run() == 25


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.slow
def test_the_log_of_a_java_broker_is_followed_while_it_writes_and_over_its_death(
    spark: SparkSession, tmp_path: Path
) -> None:
    try:
        programs = JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))
    store, out = tmp_path / "java" / "store", tmp_path / "out"
    with (
        name_server(tmp_path / "namesrv") as (_, namesrv),
        programs.broker(
            tmp_path / "java", namesrv, mappedFileSizeCommitLog=64 << 10, maxMessageSize=32 << 10
        ) as broker,
        Sending(namesrv, "Ledger") as sending,
    ):
        source = spark.readStream.format("commitlog").option("starting", "earliest").load(str(store))
        rows = source.where("topic = 'Ledger'").select("log_offset", "body").writeStream.format("parquet")
        rows = rows.option("path", str(out)).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = rows.trigger(processingTime="200 milliseconds").start()

        def followed() -> dict[int, str]:
            if not list(out.glob("_spark_metadata/[0-9]*")):
                return {}  # no batch is whole yet
            rows = spark.read.schema("log_offset long, body binary").parquet(str(out)).collect()
            return {row.log_offset: row.body.decode() for row in rows}

        def wait_for(wanted: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 600
            while not wanted():
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, (len(followed()), len(sending.acknowledged))
                time.sleep(0.2)

        wait_for(lambda: len(followed()) > 200)
        broker.kill()
        broker.start()
        seen = len(followed())
        wait_for(lambda: len(followed()) > seen + 200)
        acknowledged = sending.stop()
        wait_for(lambda: set(acknowledged) <= set(followed().values()))
        query.stop()
    there = spark.read.format("commitlog").load(str(store)).where("topic = 'Ledger'").collect()
    assert {row.log_offset: row.body.decode() for row in there} == followed()
    assert spark.read.parquet(str(out)).count() == len(there)
    assert len(find_commit_log(str(store)).segments) > 1
    log.info("%d rows followed, %d acknowledged", len(there), len(acknowledged))


def test_a_stream_of_what_is_there_now_needs_a_store(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "none")
    assert stream.initialOffset() == {"log_offset": 0}, "a broker may be about to start"
    with pytest.raises(StoreNotFound, match="there is no store at"):
        stream.prepareForTriggerAvailableNow()
