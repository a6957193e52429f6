"""The format "rocketmq" against a stack in this process: every option, lost data, and refusals by brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketlet import Message, MessageQueue, Producer
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def stack() -> Iterator[ThreadStack]:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as running:
        yield running


@pytest.fixture(scope="module")
def orders(stack: ThreadStack) -> list[int]:
    """120 messages in a topic of four queues; returns the times at which each third began, in milliseconds."""
    began = []
    with Producer("writers", namesrv=stack.namesrv) as producer:
        producer.create_topic("Orders", 4)
        for number in range(120):
            if number % 40 == 0:
                time.sleep(0.01)  # store times distinguish the thirds
                began.append(time.time_ns() // 1_000_000)
            message = Message("Orders", b"%d" % number, tags="odd" if number % 2 else "even", keys=[f"key-{number}"])
            message.properties["number"] = str(number)
            producer.send(message, queue=MessageQueue("Orders", "broker-a", number % 4))
    return began


Table = Callable[..., "DataFrame"]


@pytest.fixture
def table(spark: SparkSession, stack: ThreadStack) -> Table:
    def load(topics: str = "Orders", **options: Any) -> DataFrame:
        reader = spark.read.format("rocketmq").option("namesrv", stack.namesrv).options(**options)
        return (reader if "topicsPattern" in options else reader.option("topics", topics)).load()

    return load


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


@pytest.mark.usefixtures("orders")
class TestTable:
    def test_every_message_has_the_columns_of_the_log(self, table: Table) -> None:
        rows = table().orderBy("queue_id", "queue_offset").collect()
        assert len(rows) == 120
        assert [(row.queue_id, row.queue_offset) for row in rows] == [(q, n) for q in range(4) for n in range(30)]
        first = rows[0]
        assert (first.topic, bytes(first.body), first.tags, first["keys"]) == ("Orders", b"0", "even", ["key-0"])
        assert (first.properties["number"], first.crc_state, first.transaction) == ("0", "good", "none")

    def test_tags_are_filtered_at_the_broker(self, table: Table) -> None:
        assert numbers(table(tags="odd")) == list(range(1, 120, 2))

    def test_sql_is_filtered_at_the_broker(self, table: Table) -> None:
        assert numbers(table(sql="number >= 100 AND number < 110")) == list(range(100, 110))

    def test_sparks_filters_are_pushed_down(self, table: Table) -> None:
        assert numbers(table().where("queue_offset >= 28 and queue_id = 1")) == [113, 117]

    def test_a_table_starts_and_ends_at_offsets(self, table: Table) -> None:
        start = json.dumps({"Orders": {"broker-a:0": 28, "broker-a:1": -2}})
        end = json.dumps({"Orders": {"broker-a:0": -1, "broker-a:1": 2, "broker-a:2": 0, "broker-a:3": 0}})
        assert numbers(table(startingOffsets=start, endingOffsets=end)) == [1, 5, 112, 116]

    def test_a_table_starts_and_ends_at_times(self, table: Table, orders: list[int]) -> None:
        found = numbers(table(startingTimestamp=orders[1], endingTimestamp=orders[2]))
        assert found == list(range(40, 80))

    def test_a_pattern_leaves_out_system_topics(self, table: Table) -> None:
        frame = table(topicsPattern=".*rders|TBW102|rmq_sys.*|SCHEDULE.*")
        assert {row.topic for row in frame.select("topic").distinct().collect()} == {"Orders"}

    def test_a_backlog_is_read_by_more_tasks_than_queues(self, table: Table) -> None:
        assert table().rdd.getNumPartitions() == 4
        assert table(minPartitions=8).rdd.getNumPartitions() == 8
        split = table(maxRecordsPerPartition=10)
        assert split.rdd.getNumPartitions() == 12
        assert numbers(split) == list(range(120))

    def test_an_unserved_topic_is_an_error(self, table: Table) -> None:
        with pytest.raises(Exception, match="no broker serves the topic") as failed:
            table("Nothing", retrySeconds=0).count()
        assert "Nothing" in str(failed.value)

    def test_an_offset_for_another_queue_is_refused(self, table: Table) -> None:
        with pytest.raises(Exception, match="queues that no broker serves: Orders/broker-x/0"):
            table(startingOffsets='{"Orders": {"broker-x:0": 1}}').count()

    def test_a_temporarily_refusing_broker_is_asked_again(self, table: Table, stack: ThreadStack) -> None:
        stack.on(RequestCode.PULL_MESSAGE, reply=ResponseCode.SYSTEM_BUSY, times=3)
        stack.on(RequestCode.PULL_MESSAGE, disconnect=True, times=2)
        assert numbers(table()) == list(range(120))

    def test_an_offset_beyond_the_end_of_a_queue_is_lost_data(self, table: Table) -> None:
        end = '{"Orders": {"broker-a:0": 31}}'
        with pytest.raises(Exception, match="are gone: the queue ends at 30"):
            table(startingOffsets="earliest", endingOffsets=end, retrySeconds=1).count()
        assert table(endingOffsets=end, failOnDataLoss=False, retrySeconds=1).count() == 120


class TestStream:
    def test_a_stream_reads_limited_batches_and_continues_from_its_checkpoint(
        self, spark: SparkSession, stack: ThreadStack, tmp_path: Path
    ) -> None:
        send(stack, "Stream", range(50))

        def run() -> list[int]:
            source = spark.readStream.format("rocketmq").option("namesrv", stack.namesrv).option("topics", "Stream")
            frame = (
                source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20).option("group", "SG")
            )
            query = (
                frame.load().selectExpr("cast(body as string) as body").writeStream.format("parquet")
                .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination(120)
            return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

        assert run() == [20, 20, 10]
        send(stack, "Stream", range(50, 60))
        send(stack, "Stream", range(60, 65), queue=MessageQueue("Stream", "broker-a", 3))
        assert run() == [15]
        assert run() == []
        written = spark.read.parquet(str(tmp_path / "out"))
        assert sorted(int(row.body) for row in written.collect()) == list(range(65))
        assert committed(stack, "SG", "Stream") == 65

    def test_rows_are_sent_with_a_key_each(self, spark: SparkSession, stack: ThreadStack, tmp_path: Path) -> None:
        send(stack, "From", range(40))
        source = spark.readStream.format("rocketmq").option("namesrv", stack.namesrv).option("topics", "From")
        rows = source.option("startingOffsets", "earliest").load().selectExpr(
            "'To' as topic", "body", "tags", "keys", "map('n', cast(body as string)) as properties",
            "cast(queue_id as string) as sharding_key",
        )  # fmt: skip
        query = (
            rows.writeStream.format("rocketmq").option("namesrv", stack.namesrv)
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(120)
        found = spark.read.format("rocketmq").option("namesrv", stack.namesrv).option("topics", "To").load().collect()
        assert sorted(int(row.body) for row in found) == list(range(40))
        assert len({row.properties["SPARK_ROW"] for row in found}) == 40
        assert all(row.properties["n"] == bytes(row.body).decode() for row in found)
        for shard in {row.properties["__SHARDINGKEY"] for row in found}:
            own = [row for row in found if row.properties["__SHARDINGKEY"] == shard]
            assert len({row.queue_id for row in own}) == 1
            in_order = sorted(own, key=lambda row: row.queue_offset)
            assert [int(row.body) for row in in_order] == sorted(int(row.body) for row in own)


def test_a_table_is_written_with_tags_keys_and_a_delay(spark: SparkSession, stack: ThreadStack) -> None:
    rows = spark.createDataFrame(
        [(f"text {n}", "T", ["a", "b"], 0) for n in range(100)],
        "body string, tags string, keys array<string>, delay int",
    )
    rows.write.format("rocketmq").option("namesrv", stack.namesrv).option("topic", "Written").mode("append").save()
    found = spark.read.format("rocketmq").option("namesrv", stack.namesrv).option("topics", "Written").load()
    assert found.where("tags = 'T' and size(keys) = 2").count() == 100
    with pytest.raises(Exception, match="messages cannot be overwritten"):
        rows.write.format("rocketmq").option("namesrv", stack.namesrv).option("topic", "W").mode("overwrite").save()
    with pytest.raises(Exception, match="column price has no place in a message"):
        rows.withColumnRenamed("tags", "price").write.format("rocketmq").option("namesrv", stack.namesrv).option(
            "topic", "W"
        ).mode("append").save()


def send(stack: ThreadStack, topic: str, bodies: range, queue: MessageQueue | None = None) -> None:
    with Producer("writers", namesrv=stack.namesrv) as producer:
        for number in bodies:
            producer.send(Message(topic, b"%d" % number), queue=queue)


def committed(stack: ThreadStack, group: str, topic: str) -> int:
    from rocketlet import PullConsumer

    with PullConsumer(group, namesrv=stack.namesrv) as consumer:
        return sum(consumer.offset(queue) or 0 for queue in consumer.queues(topic))
