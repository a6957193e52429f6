"""Brokers' requests to consumers on an administrator's behalf, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeFrom,
    Later,
    Message,
    ReceivedMessage,
)
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.protocol.header import Header
from rocketlet.remoting.protocol.inspection import (
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
    ConsumerRunningInfo,
    GetConsumerRunningInfoHeader,
)
from rocketlet.remoting.protocol.offsets import ConsumerStatusBody, ConsumerStatusHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_cluster import Cluster, memory_cluster


async def ask(cluster: Cluster, code: RequestCode, header: Header) -> Command:
    async with ConnectionPool(cluster.network) as pool:
        return await pool.call(cluster.address("broker-a"), request(code, header), 15)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Cluster, str]]:
    """A broker with ten messages in one queue, and the offset id of the first."""
    async with memory_cluster() as cluster:
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            await producer.create_topic("T", 1)
            await trio.sleep(1)
            sent = [await producer.send(Message("T", b"%d" % n, tags="a")) for n in range(10)]
        yield cluster, sent[0].offset_message_id


def push(cluster: Cluster, listener: object, **settings: object) -> AsyncPushConsumer:
    return AsyncPushConsumer(
        "g",
        listener,  # type: ignore[arg-type]
        topics={"T": "*"},
        namesrv=cluster.namesrv,
        world=cluster.world(),
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **settings,
    )


async def test_a_push_consumer_reports_its_running_info(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(message: ReceivedMessage) -> bool:
        await trio.sleep(0.5)
        return message.body != b"3"

    async with (
        filled() as (cluster, _),
        push(cluster, listener, threads=4, access_key="account", secret_key="hidden") as consumer,
    ):
        await trio.sleep(5)
        header = GetConsumerRunningInfoHeader(consumerGroup="g", clientId=consumer.client_id, jstackEnable=True)
        answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = ConsumerRunningInfo.from_json(answer.body)
        told = {queue.topic: one for queue, one in info.mqTable.items()}["T"]
        assert (told.commitOffset, told.cachedMsgCount, told.droped, told.locked) == (10, 0, False, False)
        assert abs(cluster.clock() - told.lastConsumeTimestamp) < 10_000
        assert {one.topic for one in info.subscriptionSet} == {"T", "%RETRY%g"}
        speed = info.statusTable["T"]
        assert speed.consumeFailedMsgs == 1
        assert speed.consumeOKTPS == pytest.approx(9 / 60)
        assert speed.consumeRT == pytest.approx(500, abs=20)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "4"
        assert "hidden" not in str(info.properties)
        assert "trio" in (info.jstack or "")


async def test_rates_of_the_last_minute_do_not_depend_on_the_wall_clock(autojump_clock: trio.testing.MockClock) -> None:
    """Set back by a day, the last minute was all that was consumed in a day."""
    wall = [1_700_000_000_000]

    async def listener(_: ReceivedMessage) -> bool:
        return True

    async with filled() as (cluster, _):
        world = replace(cluster.world(), clock=lambda: wall[0])
        settings = {"namesrv": cluster.namesrv, "world": world, "consume_from": ConsumeFrom.FIRST_OFFSET}
        async with AsyncPushConsumer("g", listener, topics={"T": "*"}, **settings) as consumer:
            for rate in (10 / 60, 0):
                await trio.sleep(30)
                header = GetConsumerRunningInfoHeader(consumerGroup="g", clientId=consumer.client_id)
                answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                speed = ConsumerRunningInfo.from_json(answer.body).statusTable["T"]
                assert speed.consumeOKTPS == pytest.approx(rate)
                wall[0] -= 86_400_000
                await trio.sleep(60)


async def test_pull_consumers_report_their_running_info(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        filled() as (cluster, _),
        AsyncLitePullConsumer("lite", topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world()) as lite,
        AsyncPullConsumer("pull", namesrv=cluster.namesrv, world=cluster.world()) as pull,
    ):
        await lite.poll()
        await pull.share("T")
        await trio.sleep(35)
        for group, consumer, topics in (("lite", lite, {"T"}), ("pull", pull, set())):
            header = GetConsumerRunningInfoHeader(consumerGroup=group, clientId=_client_id(consumer))
            answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            info = ConsumerRunningInfo.from_json(answer.body)
            assert {queue.topic for queue in info.mqTable} == topics
            assert {one.topic for one in info.subscriptionSet} == {"T"}
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert info.jstack is None


def _client_id(consumer: AsyncLitePullConsumer | AsyncPullConsumer) -> str:
    return consumer._running()[1].session.client_id


async def test_a_consumer_reports_its_progress(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"7":
            await trio.sleep_forever()

    async with filled() as (cluster, _), push(cluster, listener, shutdown_timeout=1.0) as consumer:
        await trio.sleep(5)
        header = ConsumerStatusHeader(topic="T", group="g", clientAddr="")
        answer = await ask(cluster, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        table = ConsumerStatusBody.from_json(answer.body).consumerTable[consumer.client_id]
        assert list(table.values()) == [7]


@pytest.mark.parametrize(
    ("outcome", "result"), [(None, "CR_SUCCESS"), (Later(), "CR_LATER"), (ValueError("no"), "CR_THROW_EXCEPTION")]
)
@pytest.mark.parametrize("orderly", [False, True])
async def test_an_administrator_can_have_a_message_consumed(
    autojump_clock: trio.testing.MockClock, orderly: bool, outcome: object, result: str
) -> None:
    got: list[ReceivedMessage] = []
    direct = False

    async def listener(message: ReceivedMessage) -> object:
        if direct:
            got.append(message)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return None

    async with filled() as (cluster, message_id), push(cluster, listener, orderly=orderly) as consumer:
        await trio.sleep(5)
        direct = True
        header = ConsumeMessageDirectlyHeader(
            consumerGroup="g", clientId=consumer.client_id, msgId=message_id, brokerName="broker-a"
        )
        answer = await ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        told = ConsumeMessageDirectlyBody.from_json(answer.body)
        assert (told.consumeResult, told.order) == (result, orderly)
        assert [(message.topic, message.body) for message in got] == [("T", b"0")]
        assert ("ValueError" in (told.remark or "")) == isinstance(outcome, Exception)
        await trio.sleep(5)
    assert len(got) == 1, "its failure is told, and nothing else"
