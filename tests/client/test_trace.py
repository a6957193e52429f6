"""Message traces: what is recorded, in the fields of RocketMQ 4.9.8, and what is not."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ConsumeFrom,
    Later,
    Message,
    TransactionState,
)
from rocketlet.client.errors import ClientError
from rocketlet.client.hooks import SendContext
from rocketlet.client.sending.transaction_producer import Transaction
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.message_record import decode
from tests.support.memory_cluster import Cluster, memory_cluster

RECORDED = Path(__file__).parent.parent / "vectors" / "frames" / "producer-trace.jsonl"
TRACES = "RMQ_SYS_TRACE_TOPIC"


@asynccontextmanager
async def cluster_with_traces(**settings: object) -> AsyncIterator[Cluster]:
    async with memory_cluster(trace_topic_enable=True, **settings) as cluster:
        yield cluster


def at(cluster: Cluster) -> dict[str, Any]:
    return {"namesrv": cluster.namesrv, "world": cluster.world()}


async def trace_records(cluster: Cluster) -> list[list[str]]:
    """All records so far, split into fields."""
    records: list[list[str]] = []
    one = cluster.brokers["broker-a"]
    for offset in range(one.store.queue_end(TRACES, 0)):
        entry = one.store.queue(TRACES, 0).entry(offset)  # type: ignore[union-attr]
        assert entry is not None
        body = decode(one.store.record_at(entry[0]) or b"").body
        text = (zlib.decompress(body) if body.startswith(b"\x78") else body).decode()
        records += [record.split("\x01") for record in text.split("\x02") if record]
    return records


class Untraced:
    """Sets the switch that only clients may set: users cannot set that property."""

    def before_send(self, context: SendContext) -> None:
        context.properties["TRACE_ON"] = "false"

    def after_send(self, context: SendContext) -> None:
        pass


def recorded_pub() -> list[str]:
    """The fields written by Java's client."""
    for line in RECORDED.read_text("utf-8").splitlines():
        frame = base64.b64decode(json.loads(line)["b64"])
        if b"Pub\x01" in frame:
            return frame[frame.index(b"Pub\x01") :].partition(b"\x02")[0].decode().split("\x01")
    raise AssertionError(f"no trace in {RECORDED}")


async def test_a_send_is_traced_in_javas_fields(autojump_clock: trio.testing.MockClock) -> None:
    java = recorded_pub()
    async with cluster_with_traces() as cluster:
        async with AsyncProducer("PG_trace", trace=True, **at(cluster)) as producer:
            sent = await producer.send(Message("TopicA", b"sixsix", tags="TagA", keys=["tr-1"]))
        (pub,) = await trace_records(cluster)
        address = cluster.brokers["broker-a"].identity.address
    assert len(pub) == len(java) == 14
    same = [0, 2, 3, 4, 6, 7, 9, 11, 13]  # kind, region, group, topic, tags, keys, length, type, success
    assert [pub[field] for field in same] == [java[field] for field in same]
    assert pub[5] == sent.message_id
    assert pub[12] == sent.offset_message_id
    # Java's, too, is the broker's address, not its name.
    assert pub[8] == address
    assert java[8].count(":") == 1


async def test_types_of_messages(autojump_clock: trio.testing.MockClock) -> None:
    async def execute(transaction: Transaction) -> TransactionState:
        return TransactionState.ROLLBACK

    async def check(message: ReceivedMessage) -> None:
        return None

    async with cluster_with_traces() as cluster:
        async with AsyncTransactionProducer("p", check, trace=True, **at(cluster)) as producer:
            await producer.send(Message("T", b"plain"))
            await producer.send(Message("T", b"later", delay_level=3))
            half = await producer.send_in_transaction(Message("T", b"half", tags="A", keys=["k1", "k2"]), execute)
            batch = await producer.send_batch([Message("T", b"1"), Message("T", b"22")])
        records = await trace_records(cluster)
    pubs = [record for record in records if record[0] == "Pub"]
    assert [record[11] for record in pubs] == ["0", "3", "1", "0"]
    assert pubs[3][5] == batch.message_id
    assert pubs[3][5].count(",") == 1
    (end,) = [record for record in records if record[0] == "EndTransaction"]
    assert len(end) == 13
    assert end[2:8] == ["DefaultRegion", "p", "T", half.message_id, "A", "k1 k2"]
    assert end[9:] == ["2", half.message_id, "ROLLBACK_MESSAGE", "false"]


async def test_an_end_after_a_check_is_traced_as_such(autojump_clock: trio.testing.MockClock) -> None:
    async def execute(transaction: Transaction) -> TransactionState:
        return TransactionState.UNKNOWN

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with cluster_with_traces(transaction_check_interval=10_000, transaction_time_out=5_000) as cluster:
        async with AsyncTransactionProducer("p", check, trace=True, **at(cluster)) as producer:
            await producer.send_in_transaction(Message("T", b"x"), execute)
            await trio.sleep(60)
        ends = [record[11:] for record in await trace_records(cluster) if record[0] == "EndTransaction"]
    assert ends == [["UNKNOW", "false"], ["COMMIT_MESSAGE", "true"]]


async def test_unstored_and_untraced_sends_are_not_traced(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster_with_traces(auto_create_topic_enable=False) as cluster:
        async with AsyncProducer("p", trace=True, **at(cluster)) as producer:
            with pytest.raises(ClientError):
                await producer.send(Message("nowhere", b"x"))
        async with AsyncProducer("p", trace=True, hooks=[Untraced()], **at(cluster)) as producer:
            await producer.send(Message("BenchmarkTest", b"x"))
        assert await trace_records(cluster) == []


async def test_a_broker_may_disable_traces(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster_with_traces(trace_on=False) as cluster:
        async with AsyncProducer("p", trace=True, **at(cluster)) as producer:
            await producer.send(Message("T", b"x"))
        assert await trace_records(cluster) == []


async def test_the_listeners_result_is_traced(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(message: ReceivedMessage) -> Later | None:
        if message.body == b"raises":
            raise KeyError(1)
        if message.body == b"slow":
            await trio.sleep(5)
        return Later() if message.body == b"later" else None

    async with cluster_with_traces() as cluster:
        bodies = {}
        async with AsyncProducer("p", **at(cluster)) as producer:
            for body in (b"fine", b"raises", b"slow", b"later"):
                bodies[(await producer.send(Message("T", body))).message_id] = body
        async with AsyncProducer("p", hooks=[Untraced()], **at(cluster)) as producer:
            await producer.send(Message("T", b"untold"))
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"T": "*"},
            trace=True,
            consume_timeout=4,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **at(cluster),
        ):
            await trio.sleep(9)
        records = await trace_records(cluster)
    after = {bodies[record[2]]: record for record in records if record[0] == "SubAfter"}
    assert {body: (record[4], record[6]) for body, record in after.items()} == {
        b"fine": ("true", "0"),
        b"raises": ("false", "2"),
        b"slow": ("true", "1"),
        b"later": ("false", "4"),
    }
    assert {record[5] for record in records if record[0] == "SubBefore"} == set(bodies)
    assert all(len(record) == 9 and record[8] == "g" for record in after.values())


async def test_a_trace_message_is_limited_as_javas(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster_with_traces() as cluster:
        async with AsyncProducer("p", trace=True, **at(cluster)) as producer:
            for number in range(90):
                await producer.send(Message("T", b"x", keys=["k" * 2000 + str(number)]))
        store = cluster.brokers["broker-a"].store
        assert store.queue_end(TRACES, 0) >= 2
        assert len([record for record in await trace_records(cluster) if record[0] == "Pub"]) == 90
