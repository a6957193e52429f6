"""What listeners, checkers and other functions of users write into the objects that they are given ends no client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    AsyncSimpleConsumer,
    AsyncTransactionProducer,
    ConsumeContext,
    ConsumeFrom,
    InvalidUse,
    Later,
    Message,
    ReceivedMessage,
    TransactionState,
)
from rocketlet.client.errors import ListenerFailed
from rocketlet.client.hooks import ConsumeHookContext, SendContext
from rocketlet.common.message import MessageQueue
from tests.support.memory_cluster import Cluster, memory_cluster

FIELDS = ("topic", "body", "queue", "queue_offset", "log_offset", "message_id", "store_host", "reconsume_times")
QUEUE = MessageQueue("T", "broker-a", 0)


def overwritten(message: ReceivedMessage) -> None:
    for name in (*FIELDS, "tags", "keys", "properties", "flag"):
        setattr(message, name, None)


def with_others(message: ReceivedMessage) -> None:
    message.queue_offset = message.log_offset = message.reconsume_times = 10**6
    message.queue = MessageQueue("other", "other", 7)
    message.body = b"another body of another size"
    message.topic = message.message_id = "\ud800"
    message.properties.clear()


def emptied(message: ReceivedMessage) -> None:
    for name in (*FIELDS, "tags", "keys", "properties", "flag"):
        delattr(message, name)


class ReprFails:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def succeed() -> None:
    return None


def ask_again() -> Later:
    return Later(delay_level=1)


def fail() -> None:
    raise ValueError("no")


def answer_nonsense() -> object:
    return ReprFails()


SPOIL = pytest.mark.parametrize("spoil", [overwritten, with_others, emptied])


@asynccontextmanager
async def filled(count: int = 3) -> AsyncIterator[tuple[Cluster, AsyncProducer]]:
    async with (
        memory_cluster(brokers=1) as cluster,
        AsyncProducer("producers", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        await producer.create_topic("T", 1)
        await trio.sleep(1)
        for number in range(count):
            await producer.send(Message("T", b"%d" % number, tags="a", properties={"own": "value"}))
        yield cluster, producer


def given(cluster: Cluster) -> dict[str, Any]:
    return {
        "topics": {"T": "*"}, "namesrv": cluster.namesrv, "world": cluster.world(),
        "consume_from": ConsumeFrom.FIRST_OFFSET,
    }  # fmt: skip


@SPOIL
@pytest.mark.parametrize("end", [succeed, ask_again, fail, answer_nonsense])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("trace", [False, True])
async def test_a_listener_may_write_anything_into_its_messages(
    autojump_clock: MockClock,
    spoil: Callable[[ReceivedMessage], None],
    end: Callable[[], object],
    orderly: bool,
    in_batches: bool,
    trace: bool,
) -> None:
    seen: list[tuple[bytes, str, int, str | None, int]] = []

    def take(message: ReceivedMessage) -> object:
        number = message.queue_offset if message.topic == "T" else -1
        seen.append((message.body, message.topic, message.reconsume_times, message.properties.get("own"), number))
        is_first = message.reconsume_times == 0
        spoil(message)
        return end() if is_first else None

    async def listener(message: ReceivedMessage) -> Any:
        return take(message)

    async def batch_listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> Any:
        assert isinstance(messages, list)
        answers = []
        for message in messages.copy():
            messages.remove(message)
            answers.append(take(message))
        del context.queue, context.orderly
        return answers[0]

    listeners: dict[str, Any] = {"batch_listener": batch_listener} if in_batches else {"listener": listener}
    async with filled() as (cluster, producer):
        async with AsyncPushConsumer("G", **listeners, orderly=orderly, trace=trace, **given(cluster)) as consumer:
            await trio.sleep(30)
            await producer.send(Message("T", b"3", properties={"own": "value"}))
            await trio.sleep(30)
            assert set((await consumer.lag()).values()) == {0}
        tries = [0] if end is succeed else [0, 1]
        assert sorted({each[:4] for each in seen}) == [
            (b"%d" % number, "T", tried, "value") for number in range(4) for tried in tries
        ]


async def test_a_message_in_need_of_more_tries_here_is_given_anew(autojump_clock: MockClock) -> None:
    seen: list[tuple[int, dict[str, str]]] = []

    async def listener(message: ReceivedMessage) -> Later | None:
        seen.append((message.reconsume_times, dict(message.properties)))
        message.reconsume_times = "many"  # type: ignore[assignment]
        message.properties.clear()
        return Later(suspend=0.1) if len(seen) < 4 else None

    async with filled(1) as (cluster, _), AsyncPushConsumer("G", listener, orderly=True, **given(cluster)):
        await trio.sleep(5)
    assert [tries for tries, _ in seen] == [0, 1, 2, 3]
    assert {properties["own"] for _, properties in seen} == {"value"}


async def test_hooks_may_write_anything_into_their_contexts(autojump_clock: MockClock) -> None:
    class Spoiling:
        def before_consume(self, context: ConsumeHookContext) -> None:
            self.spoil(context)

        def after_consume(self, context: ConsumeHookContext) -> None:
            self.spoil(context)

        def before_send(self, context: SendContext) -> None:
            context.message_id = context.born = context.body_size = None  # type: ignore[assignment]

        def after_send(self, context: SendContext) -> None:
            del context.message

        def spoil(self, context: ConsumeHookContext) -> None:
            messages = context.messages
            assert isinstance(messages, list)
            for message in messages:
                emptied(message)
            messages.clear()
            del context.queue

    async def listener(message: ReceivedMessage) -> None:
        raise AssertionError

    async with filled(2) as (cluster, _):
        async with AsyncPushConsumer("G", listener, hooks=[Spoiling()], **given(cluster)) as consumer:
            await trio.sleep(5)
            assert consumer.queues()
        async with AsyncProducer(
            "p", namesrv=cluster.namesrv, world=cluster.world(), hooks=[Spoiling()], trace=True
        ) as producer:
            for _ in range(2):
                await producer.send(Message("T", b"x"))


@SPOIL
async def test_a_popped_message_that_was_changed_is_refused_or_done(
    autojump_clock: MockClock, spoil: Callable[[ReceivedMessage], None]
) -> None:
    async with filled(2) as (cluster, _), AsyncSimpleConsumer("G", **given(cluster)) as consumer:
        first, second = await consumer.receive(2)
        spoil(first)
        with pytest.raises(InvalidUse, match=r"the message's|receipt handle"):
            await consumer.ack(first)
        with pytest.raises(InvalidUse, match=r"the message's|receipt handle"):
            await consumer.extend(first, 5.0)
        second.queue_offset = 10**12  # the handle says where it is
        await consumer.ack(second)
        again = await consumer.receive(2, wait=60.0)
        assert [message.body for message in again] == [b"0"]


async def test_what_a_lite_pull_consumer_gave_may_be_changed(autojump_clock: MockClock) -> None:
    async with filled(3) as (cluster, producer), AsyncLitePullConsumer("G", **given(cluster)) as consumer:
        async for batch in consumer.batches():
            batch.offsets.clear()
            batch.bodies[:] = [None] * 2  # type: ignore[list-item]
            del batch.queue
            break
        await consumer.commit()
        await producer.send(Message("T", b"3"))
        (message,) = await consumer.poll()
        overwritten(message)
        await consumer.commit()
        assert await consumer.committed(MessageQueue("T", "broker-a", 0)) == 4
        assert await consumer.poll(1.0) == []
        assert consumer._running()[1].rebalance.totals.bytes == 0


async def test_a_selector_may_return_anything(autojump_clock: MockClock) -> None:
    class Unequal(ReprFails):
        def __eq__(self, other: object) -> bool:
            raise ValueError("no comparison")

        __hash__ = None  # type: ignore[assignment]

    def raising(*args: object) -> MessageQueue:
        raise type("Worst", (ReprFails, Exception), {})

    async with filled(0) as (_, producer):
        for selector in (lambda *_: Unequal(), lambda *_: ReprFails(), raising):
            with pytest.raises(ListenerFailed, match="the selector"):
                await producer.send(Message("T", b"x"), selector=selector)
        await producer.send(Message("T", b"x"))


@SPOIL
async def test_a_checker_may_write_anything_into_its_message(
    autojump_clock: MockClock, spoil: Callable[[ReceivedMessage], None]
) -> None:
    checked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.body)
        spoil(message)
        if len(checked) == 1:
            raise type("Worst", (ReprFails, Exception), {})
        return TransactionState.COMMIT

    async def execute(message: Message) -> TransactionState:
        spoiled: Any = message
        spoiled.topic = spoiled.properties = spoiled.keys = None
        return TransactionState.UNKNOWN

    async with (
        filled(0) as (cluster, producer),
        AsyncTransactionProducer("tx", check, namesrv=cluster.namesrv, world=cluster.world(), trace=True) as sender,
    ):
        await sender.send_in_transaction(Message("T", b"x"), execute)
        await trio.sleep(200)
        await producer.send(Message("T", b"y"))
        async with AsyncSimpleConsumer("G", **given(cluster)) as consumer:
            assert sorted(message.body for message in await consumer.receive(2)) == [b"x", b"y"]
    assert checked == [b"x", b"x"]
