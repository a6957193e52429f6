"""Lite pull and pull consumers, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    ClientClosed,
    ConsumeFrom,
    InvalidUse,
    Message,
    MessageQueue,
    PullStatus,
    ReceivedMessage,
)
from tests.support.memory_cluster import Cluster, memory_cluster

QUEUE = MessageQueue("T", "broker-a", 0)


@asynccontextmanager
async def filled(count: int, queues: int = 1) -> AsyncIterator[tuple[Cluster, AsyncProducer]]:
    """A broker whose topic T has that many messages, with their numbers as bodies."""
    async with (
        memory_cluster() as cluster,
        AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        await producer.create_topic("T", queues)
        await trio.sleep(1)
        for n in range(count):
            await producer.send(Message("T", b"%d" % n, tags="ab"[n % 2]))
        yield cluster, producer


def lite(cluster: Cluster, **settings: Any) -> AsyncLitePullConsumer:
    given = {"consume_from": ConsumeFrom.FIRST_OFFSET, **settings}
    return AsyncLitePullConsumer("g", namesrv=cluster.namesrv, world=cluster.world(), **given)


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def test_finished_messages_are_committed(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(5) as (cluster, _):
        async with lite(cluster, topics={"T": "*"}, pull_batch=2) as consumer:
            assert numbers(await consumer.poll()) == [0, 1]
            assert numbers(await consumer.poll()) == [2, 3]
            await trio.sleep(6)
            assert await consumer.committed(QUEUE) == 2, "the second two are still being worked on"
        async with lite(cluster, topics={"T": "*"}) as consumer:
            assert numbers(await consumer.poll()) == [4], "the block ended well, so they were consumed"


async def test_messages_of_a_failed_block_are_redelivered(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(3) as (cluster, _):
        with pytest.raises(ValueError, match="over message 1"):
            async with lite(cluster, topics={"T": "*"}) as consumer:
                async for message in consumer:
                    if message.body == b"1":
                        raise ValueError("over message 1")
        async with lite(cluster, topics={"T": "*"}) as consumer:
            assert numbers(await consumer.poll()) == [1, 2]


async def test_iterating_waits_for_messages(autojump_clock: trio.testing.MockClock) -> None:
    got: list[int] = []

    async with filled(2) as (cluster, producer), lite(cluster, topics={"T": "*"}) as consumer:

        async def read() -> None:
            async for message in consumer:
                got.append(int(message.body))
                if len(got) == 4:
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(30)
            for n in (2, 3):
                await producer.send(Message("T", b"%d" % n))
    assert got == [0, 1, 2, 3]


async def test_leaving_a_loop_early_leaves_the_rest_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(6) as (cluster, _), lite(cluster, topics={"T": "*"}) as consumer:
        got: list[int] = []
        for _ in range(2):
            async for message in consumer:
                got.append(int(message.body))
                if len(got) % 2 == 0:
                    break
        assert got == [0, 1, 2, 3]
        assert numbers(await consumer.poll()) == [4, 5]


async def test_poll_gives_up_at_its_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(0) as (cluster, _), lite(cluster, topics={"T": "*"}) as consumer:
        began = trio.current_time()
        assert await consumer.poll(2.5) == []
        assert trio.current_time() - began == pytest.approx(2.5, abs=0.01)


async def test_closing_ends_iterating(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(0) as (cluster, _):
        async with trio.open_nursery() as nursery, lite(cluster, topics={"T": "*"}) as consumer:

            async def read() -> None:
                async for _message in consumer:
                    raise AssertionError("nothing was sent")

            nursery.start_soon(read)
            await trio.sleep(1)
        with pytest.raises(ClientClosed):
            await consumer.poll()


async def test_two_members_share_queues_and_one_takes_over(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(0, queues=4) as (cluster, _), lite(cluster, topics={"T": "*"}) as first:
        async with lite(cluster, topics={"T": "*"}) as second:
            await trio.sleep(5)
            assert len(first.assignment()) == len(second.assignment()) == 2
            assert not first.assignment() & second.assignment()
        await trio.sleep(5)
        assert len(first.assignment()) == 4


async def test_assigned_queues_can_be_sought_paused_and_resumed(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(10) as (cluster, producer), lite(cluster, auto_commit=False, pull_batch=100) as consumer:
        assert await consumer.queues("T") == [QUEUE]
        await consumer.assign([QUEUE])
        assert numbers(await consumer.poll()) == list(range(10))
        await consumer.seek(QUEUE, 7)
        assert numbers(await consumer.poll()) == [7, 8, 9]
        await consumer.seek_to_begin(QUEUE)
        assert numbers(await consumer.poll()) == list(range(10))
        await consumer.seek_to_end(QUEUE)
        assert await consumer.poll(1) == []
        with pytest.raises(InvalidUse, match="has the offsets 0 to 10, not 11"):
            await consumer.seek(QUEUE, 11)
        with pytest.raises(InvalidUse, match="not a queue of this consumer"):
            await consumer.seek(MessageQueue("T", "broker-a", 9), 0)
        consumer.pause([QUEUE])
        await trio.sleep(30)
        await producer.send(Message("T", b"10"))
        assert await consumer.poll(5) == []
        consumer.resume([QUEUE])
        assert numbers(await consumer.poll()) == [10]
        assert await consumer.offset_at(QUEUE, 0) == 0
        await consumer.commit({QUEUE: 3})
        assert await consumer.committed(QUEUE) == 3
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 11
        await consumer.assign([])
        assert consumer.assignment() == set()
        with pytest.raises(InvalidUse, match="either subscribe or assign"):
            await consumer.subscribe("T")


async def test_manually_assigned_queues_survive_rebalances(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(1) as (cluster, _), lite(cluster) as consumer:
        await consumer.assign([QUEUE])
        await trio.sleep(100)
        assert consumer.assignment() == {QUEUE}
        assert numbers(await consumer.poll()) == [0]


async def test_a_filter_goes_with_the_subscription(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(6) as (cluster, _), lite(cluster) as consumer:
        await consumer.subscribe("T", "b")
        await trio.sleep(3)
        assert numbers(await consumer.poll()) == [1, 3, 5]
        await consumer.unsubscribe("T")
        await trio.sleep(3)
        assert consumer.assignment() == set()


@pytest.mark.parametrize("by_hand", [False, True])
async def test_nothing_is_skipped_by_a_pull_that_waits_with_an_older_filter(
    autojump_clock: trio.testing.MockClock, by_hand: bool
) -> None:
    async with filled(2) as (cluster, producer), lite(cluster) as consumer:

        async def select(selection: str) -> None:
            await (consumer.assign([QUEUE], selection) if by_hand else consumer.subscribe("T", selection))

        await select("b")
        assert numbers(await consumer.poll()) == [1]
        assert await consumer.poll(1) == []  # the broker holds the next pull
        await select("*")
        for number in (2, 3, 4):
            await producer.send(Message("T", b"%d" % number, tags="a"))
            assert numbers(await consumer.poll()) == [number]


async def test_pulling_ahead_is_limited(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        filled(40) as (cluster, _),
        lite(cluster, topics={"T": "*"}, pull_batch=4, buffered_messages=8) as consumer,
    ):
        await trio.sleep(20)
        held = consumer._running()[1].rebalance.totals.count
        assert held == 8
        got: list[int] = []
        while len(got) < 40:
            got += numbers(await consumer.poll())
        assert got == list(range(40))


async def test_new_queues_of_a_topic_are_reported(autojump_clock: trio.testing.MockClock) -> None:
    told: list[tuple[str, int]] = []
    async with filled(0) as (cluster, producer), lite(cluster, topics={"T": "*"}) as consumer:
        await consumer.on_queues_changed("T", lambda topic, queues: told.append((topic, len(queues))))
        await trio.sleep(40)
        await producer.create_topic("T", 3)
        await trio.sleep(70)
    assert told == [("T", 3)]


async def test_single_pulls_report_their_status(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(6) as (cluster, producer):
        async with AsyncPullConsumer("g", namesrv=cluster.namesrv, world=cluster.world()) as consumer:
            found = await consumer.pull(QUEUE, 2, 3)
            assert (found.status, found.next_offset, found.max_offset) == (PullStatus.FOUND, 5, 6)
            assert numbers(found.messages) == [2, 3, 4]
            assert (await consumer.pull(QUEUE, 6)).status is PullStatus.NO_NEW_MESSAGE
            assert (await consumer.pull(QUEUE, 99)).status is PullStatus.OFFSET_ILLEGAL
            assert (await consumer.pull(QUEUE, 0, selection="zz")).status is PullStatus.NO_MATCHED_MESSAGE
            assert numbers((await consumer.pull(QUEUE, 0, selection="b")).messages) == [1, 3, 5]
            assert (await consumer.max_offset(QUEUE), await consumer.min_offset(QUEUE)) == (6, 0)

            async def send_later() -> None:
                await trio.sleep(4)
                await producer.send(Message("T", b"6"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_later)
                began = trio.current_time()
                held = await consumer.pull(QUEUE, 6, hold=20)
                assert trio.current_time() - began == pytest.approx(4, abs=0.1)
                assert numbers(held.messages) == [6]

            assert await consumer.share("T") == [QUEUE]
            consumer.note_offset(QUEUE, 4)
            await consumer.commit()
            assert await consumer.offset(QUEUE) == 4
            await consumer.send_back(found.messages[0], 1)
            consumer.note_offset(QUEUE, 5)
        async with AsyncPullConsumer("g", namesrv=cluster.namesrv, world=cluster.world()) as consumer:
            assert await consumer.offset(QUEUE) == 5, "noted offsets are stored at the end"
            await trio.sleep(2)
            back = await consumer.pull(MessageQueue("%RETRY%g", "broker-a", 0), 0)
            assert numbers(back.messages) == [2]


async def test_a_consumer_reports_its_lag(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(5) as (cluster, _), lite(cluster, topics={"T": "*"}, pull_batch=2) as consumer:
        assert await consumer.lag() == {QUEUE: 5}
        assert numbers(await consumer.poll()) == [0, 1]
        await consumer.commit()
        assert await consumer.lag() == {QUEUE: 3}
        assert numbers(await consumer.poll()) == [2, 3]
        assert await consumer.lag() == {QUEUE: 3}, "what was received last is not consumed yet"
        assert numbers(await consumer.poll()) == [4]
        assert await consumer.lag() == {QUEUE: 1}, "consumed, though nothing is stored yet"


async def test_batches_are_pulls_in_columns(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(7) as (cluster, producer):
        await producer.send(Message("T", b"7", keys=["k"], properties={"a": "b"}))
        async with lite(cluster, topics={"T": "*"}, pull_batch=3) as consumer:
            seen: list[bytes] = []
            async for batch in consumer.batches():
                assert (batch.queue, batch.offsets) == (QUEUE, list(range(len(seen), len(seen) + len(batch))))
                assert batch.bodies == [message.body for message in batch]
                seen += batch.bodies
                if len(seen) == 8:
                    break
                await trio.sleep(6)
                assert await consumer.committed(QUEUE) == len(seen) - len(batch), "it is still being worked on"
            assert (batch.keys[-1], batch.tags, batch.properties[-1]["a"]) == (("k",), ["a", None], "b")
            await consumer.commit()
            assert await consumer.committed(QUEUE) == 8
        assert seen == [b"%d" % n for n in range(8)]


async def test_a_batch_of_a_failed_block_is_redelivered(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(6) as (cluster, _):
        with pytest.raises(ValueError, match="over the second"):
            async with lite(cluster, topics={"T": "*"}, pull_batch=2) as consumer:
                async for batch in consumer.batches():
                    if batch.offsets[0] == 2:
                        raise ValueError("over the second")
        async with lite(cluster, topics={"T": "*"}) as consumer:
            async for batch in consumer.batches():
                assert batch.offsets == [2, 3, 4, 5]
                break


async def test_batches_hold_what_the_filter_matches(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(6) as (cluster, _), lite(cluster, topics={"T": "b"}) as consumer:
        async for batch in consumer.batches():
            assert (batch.offsets, batch.tags) == ([1, 3, 5], ["b"] * 3)
            break


async def test_a_batch_begins_where_a_loop_over_messages_stopped(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(5) as (cluster, _), lite(cluster, topics={"T": "*"}) as consumer:
        async for message in consumer:
            if message.queue_offset == 1:
                break
        async for batch in consumer.batches():
            assert (batch.offsets, batch.bodies[0]) == ([2, 3, 4], b"2")
            break
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 5


async def test_batches_of_a_lost_queue_are_not_handed_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with filled(40, queues=4) as (cluster, _):
        got: set[tuple[MessageQueue, int]] = set()
        async with lite(cluster, topics={"T": "*"}) as first:
            await trio.sleep(3)
            async with lite(cluster, topics={"T": "*"}) as second:
                await trio.sleep(30)
                for consumer in (first, second):
                    mine = consumer.assignment()
                    left = len(mine) * 10
                    async for batch in consumer.batches():
                        assert batch.queue in mine
                        got.update((batch.queue, offset) for offset in batch.offsets)
                        left -= len(batch)
                        if not left:
                            break
        assert len(got) == 40


async def test_pulling_in_columns_survives_a_broker_restart(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(3) as (cluster, producer), lite(cluster, topics={"T": "*"}) as consumer:
        batches = consumer.batches()
        assert (await anext(batches)).offsets == [0, 1, 2]
        await cluster.kill("broker-a")
        await cluster.start("broker-a")
        await trio.sleep(10)
        await producer.send(Message("T", b"3"))
        assert (await anext(batches)).offsets == [3]


async def test_closing_ends_batches(autojump_clock: trio.testing.MockClock) -> None:
    async with filled(0) as (cluster, _), trio.open_nursery() as nursery, lite(cluster, topics={"T": "*"}) as consumer:

        async def read() -> None:
            async for _batch in consumer.batches():
                raise AssertionError("nothing was sent")

        nursery.start_soon(read)
        await trio.sleep(1)
