from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import trio

from rocketlet.client.config import ConsumeFrom
from rocketlet.client.errors import InvalidUse
from rocketlet.client.facades import facade
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


@pytest.fixture
async def producer() -> AsyncIterator[AsyncProducer]:
    async with memory_cluster() as cluster:  # noqa: SIM117 - the cluster is an argument of the producer
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            yield producer


async def test_a_call_from_another_thread_ends_nothing(producer: AsyncProducer) -> None:
    sent = await producer.send(Message("T", b"1"))

    def send_soon() -> None:
        producer.send_soon(Message("T", b"2"))

    def send() -> None:
        asyncio.run(producer.send(Message("T", b"2")))

    def send_in_trio() -> None:
        trio.run(producer.send, Message("T", b"2"))

    def ask() -> None:
        trio.run(producer.max_offset, sent.queue)

    for call in (send_soon, send, send_in_trio, ask):
        with pytest.raises(InvalidUse, match="another event loop or thread"):
            await trio.to_thread.run_sync(call)
    assert await producer.max_offset(sent.queue) == 1
    await producer.send(Message("T", b"3"), queue=sent.queue)


async def test_the_exit_of_the_program_warns_of_an_open_client(
    producer: AsyncProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {key: named for key, named in facade._open_clients.items() if "test_awaitable_trio.py" in named[1]}
    monkeypatch.setattr(facade, "_open_clients", ours)  # without those that other tests have left open
    with pytest.warns(ResourceWarning, match=r"the producer 'p' made at \S+test_awaitable_trio.py:\d+ was not closed"):
        facade._warn_of_open_clients()


async def test_a_client_is_not_entered_twice(producer: AsyncProducer) -> None:
    with pytest.raises(InvalidUse, match="is running already"):
        await producer.__aenter__()
    await producer.send(Message("T", b"1"))
