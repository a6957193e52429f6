"""Whole clusters in virtual time: servers are killed, consumers come and go, and the guarantees hold."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ClientError,
    ConsumeFrom,
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
)
from rocketlet.remoting.command import request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.protocol.kv import ORDER_TOPIC_CONFIG, PutKVConfigHeader
from rocketlet.remoting.protocol.membership import ConsumerData, HeartbeatData, LockBatchAnswerBody, LockBatchBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_cluster import Cluster, memory_cluster


@asynccontextmanager
async def topic_on_all(cluster: Cluster, topic: str, queues: int) -> AsyncIterator[AsyncProducer]:
    """A producer, and its topic on every broker."""
    async with AsyncProducer(
        "producers", namesrv=cluster.namesrv, world=cluster.world(), send_timeout=10.0
    ) as producer:
        await producer.create_topic(topic, queues)
        await trio.sleep(1)
        yield producer


async def fix_order(cluster: Cluster, topic: str, queues: str) -> None:
    """The topic's order configuration at the name servers."""
    async with ConnectionPool(cluster.network) as pool:
        for address in cluster.namesrvs:
            header = PutKVConfigHeader(namespace=ORDER_TOPIC_CONFIG, key=topic, value=queues)
            answer = await pool.call(address, request(RequestCode.PUT_KV_CONFIG, header), 3)
            assert answer.code == 0


async def send_patiently(producer: AsyncProducer, message: Message, **how: object) -> SendResult:
    """Retry until acknowledged, as an application that must not lose the message."""
    while True:
        try:
            return await producer.send(message, **how)  # type: ignore[arg-type]
        except ClientError:
            await trio.sleep(1)


@pytest.mark.parametrize(
    ("seed", "pause"), [(0, 1.0), *(pytest.param(seed, 0.05, marks=pytest.mark.slow) for seed in (0, 1, 2))]
)
async def test_nothing_acknowledged_is_lost_while_every_server_is_killed_in_turn(
    autojump_clock: trio.testing.MockClock, seed: int, pause: float
) -> None:
    acknowledged: set[str] = set()
    consumed: Counter[str] = Counter()
    stop = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        consumed[message.message_id] += 1

    async def keep_sending(producer: AsyncProducer, number: int) -> None:
        n = 0
        while not stop.is_set():
            result = await send_patiently(producer, Message("T", b"%d-%d" % (number, n)))
            acknowledged.add(result.message_id)
            n += 1
            await trio.sleep(pause)

    async with (
        memory_cluster(namesrvs=2, brokers=2) as cluster,
        topic_on_all(cluster, "T", 4) as producer,
        AsyncExitStack() as consumers,
    ):
        for _ in range(2):
            consumer = AsyncPushConsumer(
                "g",
                listener,
                topics={"T": "*"},
                namesrv=cluster.namesrv,
                world=cluster.world(),
                consume_from=ConsumeFrom.FIRST_OFFSET,
            )
            await consumers.enter_async_context(consumer)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(keep_sending, producer, number)
            turns: list[tuple[Callable[[str], Awaitable[None]], str]] = [
                (cluster.kill, "broker-a"),
                (cluster.stop, cluster.namesrvs[0]),
                (cluster.kill, "broker-b"),
                (cluster.stop, cluster.namesrvs[1]),
            ]
            Random(seed).shuffle(turns)
            for end, name in turns:
                await trio.sleep(20)
                await end(name)
                await trio.sleep(40)
                if name in cluster.namesrvs:
                    await cluster.start_namesrv(cluster.namesrvs.index(name))
                else:
                    await cluster.start(name)
            await trio.sleep(60)
            stop.set()
        await trio.sleep(60)
    assert len(acknowledged) > 50 / pause
    assert acknowledged <= consumed.keys()


@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "die", "wait"]), st.integers(0, 5)), max_size=8),
    st.integers(1, 9),
)
@settings(max_examples=8)
def test_each_queue_ends_with_exactly_one_owner(steps: list[tuple[str, int]], queues: int) -> None:
    async def listener(message: ReceivedMessage) -> None:
        raise AssertionError("nothing was sent")

    async def run() -> None:
        members: list[tuple[AsyncPushConsumer, trio.Event]] = []

        async with memory_cluster(brokers=2) as cluster, topic_on_all(cluster, "T", queues):

            async def live(
                consumer: AsyncPushConsumer, leave: trio.Event, *, task_status: trio.TaskStatus[None]
            ) -> None:
                async with consumer:
                    task_status.started()
                    await leave.wait()

            async with trio.open_nursery() as nursery:

                async def join() -> None:
                    consumer = AsyncPushConsumer(
                        "g", listener, topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world()
                    )
                    leave = trio.Event()
                    await nursery.start(live, consumer, leave)
                    members.append((consumer, leave))

                await join()
                for kind, number in steps:
                    if kind == "join":
                        await join()
                    elif kind == "wait":
                        await trio.sleep(number)
                    elif len(members) > 1:
                        _, leave = members.pop(number % len(members))
                        leave.set()
                        if kind == "die":
                            await trio.sleep(0)
                await trio.sleep(30)
                owned = Counter(queue for consumer, _ in members for queue in consumer.queues() if queue.topic == "T")
                everything = {MessageQueue("T", f"broker-{x}", n) for x in "ab" for n in range(queues)}
                assert owned == Counter(everything)
                shares = [sum(q.topic == "T" for q in consumer.queues()) for consumer, _ in members]
                assert max(shares) - min(shares) <= 1
                for _, leave in members:
                    leave.set()

    logging.disable()
    try:
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_messages_stay_ordered_by_key_across_a_restart_and_a_rebalance(
    autojump_clock: trio.testing.MockClock, count: int
) -> None:
    """Strict order as in RocketMQ: an order configuration fixes the queues, so a key waits for its dead broker."""
    by_key: dict[str, list[int]] = defaultdict(list)
    running: dict[MessageQueue, object] = {}
    finished = trio.Event()

    def order_listener(owner: object) -> Callable[[ReceivedMessage], object]:
        async def listener(message: ReceivedMessage) -> None:
            assert message.queue not in running, "nobody else works on this queue"
            running[message.queue] = owner
            await trio.sleep(0.001)
            key, number = message.body.decode().split(":")
            seen = by_key[key]
            # Messages not committed when a queue moved or its broker died are redelivered, also in order.
            if not seen or int(number) > seen[-1]:
                seen.append(int(number))
            else:
                assert int(number) in seen
            del running[message.queue]

        return listener

    async def send_key(producer: AsyncProducer, key: int) -> None:
        for number in range(count // 20):
            await send_patiently(producer, Message("T", b"%d:%d" % (key, number), sharding_key=str(key)))

    async with (
        memory_cluster(namesrvs=1, brokers=2) as cluster,
        topic_on_all(cluster, "T", 4) as producer,
        trio.open_nursery() as consumers,
    ):

        async def consume(*, task_status: trio.TaskStatus[None]) -> None:
            world = cluster.world()
            async with AsyncPushConsumer(
                "g",
                order_listener(world),  # type: ignore[arg-type]
                topics={"T": "*"},
                orderly=True,
                namesrv=cluster.namesrv,
                world=world,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                task_status.started()
                await finished.wait()

        await fix_order(cluster, "T", "broker-a:4;broker-b:4")
        await consumers.start(consume)
        cluster.network.delay = 0.003
        async with trio.open_nursery() as senders:
            for key in range(20):
                senders.start_soon(send_key, producer, key)
            await trio.sleep(count * 0.00007)
            await consumers.start(consume)
            await trio.sleep(count * 0.00007)
            assert sum(map(len, by_key.values())) < count, "the broker dies while they are sent"
            await cluster.kill("broker-a")
            await trio.sleep(20)
            await cluster.start("broker-a")
            await consumers.start(consume)
        await trio.sleep(120)
        finished.set()
    assert {key: seen for key, seen in by_key.items() if seen != list(range(count // 20))} == {}
    assert len(by_key) == 20


async def test_keys_stay_in_their_queues_where_the_order_is_configured(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster(brokers=2) as cluster, topic_on_all(cluster, "T", 4) as producer:
        keys = [f"key {number}" for number in range(20)]

        async def queue_of(key: str) -> MessageQueue:
            return (await producer.send(Message("T", b"x", sharding_key=key))).queue

        before = {key: await queue_of(key) for key in keys}
        assert {queue.broker_name for queue in before.values()} == {"broker-a", "broker-b"}
        await cluster.kill("broker-a")
        await trio.sleep(60)
        moved = {key: await queue_of(key) for key in keys}
        assert {queue.broker_name for queue in moved.values()} == {"broker-b"}
        await fix_order(cluster, "T", "broker-a:4;broker-b:4")
        await trio.sleep(60)
        for key in keys:
            if before[key].broker_name == "broker-b":
                assert await queue_of(key) == before[key]
            else:
                with pytest.raises(ClientError):
                    await queue_of(key)
        await cluster.start("broker-a")
        await trio.sleep(60)
        assert {key: await queue_of(key) for key in keys} == before


async def test_a_killed_orderly_consumers_queues_pass_on_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with memory_cluster() as cluster, topic_on_all(cluster, "T", 4) as producer:
        for number in range(8):
            await producer.send(Message("T", b"%d" % number))
        queues = [WireQueue.of(MessageQueue("T", "broker-a", number)) for number in range(4)]
        heartbeat = HeartbeatData("killed", consumerDataSet=[ConsumerData("g", subscriptionDataSet=[])])
        locking = LockBatchBody("killed", "g", queues)
        address = cluster.address("broker-a")
        async with ConnectionPool(cluster.network) as pool:
            await pool.call(address, request(RequestCode.HEART_BEAT, None, heartbeat.to_json()), 3)
            answer = await pool.call(address, request(RequestCode.LOCK_BATCH_MQ, None, locking.to_json()), 3)
            assert len(LockBatchAnswerBody.from_json(answer.body).lockOKMQSet) == 4
        # Its connection has ended like a killed process's: nothing was unlocked.
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"T": "*"},
            orderly=True,
            namesrv=cluster.namesrv,
            world=cluster.world(),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await trio.sleep(3)
    assert sorted(got) == [b"%d" % number for number in range(8)]
