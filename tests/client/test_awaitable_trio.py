from __future__ import annotations

import trio

from rocketlet.client.config import ConsumeFrom
from rocketlet.client.facades.producers import AsyncProducer
from rocketlet.client.facades.push_consumers import AsyncPushConsumer
from rocketlet.common.message import Message, ReceivedMessage
from tests.support.memory_cluster import memory_cluster


async def test_sent_messages_are_consumed(autojump_clock: trio.testing.MockClock) -> None:
    got: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message)

    async with memory_cluster() as cluster:
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            sent = [await producer.send(Message("T", b"%d" % n, tags="a", keys=["k"])) for n in range(20)]
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"T": "a"},
            namesrv=cluster.namesrv,
            world=cluster.world(),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await trio.sleep(40)
    assert {message.message_id for message in got} == {result.message_id for result in sent}
