"""The simple consumer against whole brokers, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from rocketlet.client import (
    AsyncProducer,
    AsyncSimpleConsumer,
    ConsumeFrom,
    InvalidMessage,
    InvalidUse,
    Message,
    ReceivedMessage,
    Refused,
)
from tests.support.memory_cluster import Cluster, memory_cluster


async def send_some(cluster: Cluster, count: int, *, queues: int = 4, topic: str = "T", **fields: object) -> None:
    async with AsyncProducer("producers", namesrv=cluster.namesrv, world=cluster.world()) as producer:
        await producer.create_topic(topic, queues)
        await trio.sleep(1)
        for number in range(count):
            await producer.send(Message(topic, b"m%d" % number, **fields))  # type: ignore[arg-type]


def consumer(cluster: Cluster, group: str = "G", **settings: object) -> AsyncSimpleConsumer:
    given: dict[str, object] = {"topics": {"T": "*"}, "consume_from": ConsumeFrom.FIRST_OFFSET, **settings}
    return AsyncSimpleConsumer(group, namesrv=cluster.namesrv, world=cluster.world(), **given)  # type: ignore[arg-type]


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_an_acknowledged_message_is_done(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=1) as cluster:
        await send_some(cluster, 8)
        async with consumer(cluster) as one:
            got = await one.receive()
            assert bodies(got) == [b"m%d" % number for number in range(8)]
            await one.ack(got[:5])
            await one.ack(got[5])
            began = trio.current_time()
            again = await one.receive(wait=60.0)
            assert bodies(again) == bodies(got[6:])
            assert {message.reconsume_times for message in again} == {1}
            assert 29.9 < trio.current_time() - began < 30.2
            await one.ack(again)
            assert await one.receive(wait=1.0) == []


async def test_two_consumers_share_and_an_extended_message_stays_invisible(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=1) as cluster:
        await send_some(cluster, 4, queues=1)
        async with consumer(cluster) as left, consumer(cluster) as right:
            mine, others = await left.receive(2, invisible=10.0), await right.receive(2, invisible=10.0)
            assert bodies(mine) + bodies(others) == [b"m0", b"m1", b"m2", b"m3"]
            await left.extend(mine[0], 100.0)
            await trio.sleep(10)
            again = await right.receive()
            assert bodies(again) == [b"m1", b"m2", b"m3"]
            with pytest.raises(Refused, match="another consumer"):
                await left.extend(mine[1], 100.0)
            await right.extend(again[1], 0)
            assert bodies(await left.receive(wait=0)) == [again[1].body]


async def test_several_brokers_and_topics(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=2) as cluster:
        await send_some(cluster, 10)
        async with consumer(cluster, topics={"T": "*", "U": "*"}) as one:
            got: list[ReceivedMessage] = []
            while len(got) < 10:
                some = await one.receive()
                await one.ack(some)
                got += some
            assert bodies(got) == bodies(got[:0]) + sorted(b"m%d" % number for number in range(10))
            late: list[ReceivedMessage] = []

            async def wait() -> None:
                late.extend(await one.receive(wait=20.0))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(3)
                await send_some(cluster, 1)
            assert bodies(late) == [b"m0"]


async def test_tags_and_order(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=1) as cluster:
        await send_some(cluster, 3, queues=1, tags="A", sharding_key="k")
        await send_some(cluster, 3, queues=1, tags="B")
        async with consumer(cluster, topics={"T": "A"}, orderly=True) as one:
            (first,) = await one.receive(1)
            assert await one.receive(wait=1.0) == []
            await one.ack(first)
            assert [message.body for message in await one.receive()] == [b"m1", b"m2"]


async def test_invalid_calls_are_refused(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=1) as cluster:
        await send_some(cluster, 1)
        async with consumer(cluster) as one:
            (got,) = await one.receive()
            for wrong in ({"at_most": 0}, {"wait": -1.0}, {"invisible": -1.0}):
                with pytest.raises(InvalidUse):
                    await one.receive(**wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidUse):
                await one.extend(got, -1)
            del got.properties["POP_CK"]
            with pytest.raises(InvalidUse, match="hand back"):
                await one.ack(got)
        async with consumer(cluster, topics={}) as nothing:
            with pytest.raises(InvalidUse, match="nothing is subscribed"):
                await nothing.receive()


async def test_a_timed_message_and_a_recalled_one(autojump_clock: MockClock) -> None:
    async with memory_cluster(brokers=1) as cluster:
        await send_some(cluster, 0)
        async with AsyncProducer("producers", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            now = cluster.world().clock() / 1000
            kept = await producer.send(Message("T", b"kept", deliver_at=now + 5.25))
            other = await producer.send(Message("T", b"other", deliver_at=now + 5.25))
            plain = await producer.send(Message("T", b"plain"))
            assert await producer.recall(other) == other.message_id
            with pytest.raises(Refused, match="no such message waits"):
                await producer.recall(other)
            with pytest.raises(InvalidUse, match="no recall handle"):
                await producer.recall(plain)
            async with consumer(cluster) as one:
                assert bodies(await one.receive()) == [b"plain"]
                (got,) = await one.receive()
                assert got.body == b"kept"
                assert 5.25 <= got.store_timestamp / 1000 - now < 5.3
                await trio.sleep(2)
                assert await one.receive(wait=1.0) == []
            with pytest.raises(Refused, match="its delivery time has come"):
                await producer.recall(kept)
            with pytest.raises(InvalidMessage, match="not milliseconds"):
                await producer.send(Message("T", b"x", deliver_at=now * 1000))
