"""Nonsensical answers: whatever a broker or name server returns, the client reports it and keeps working."""

from __future__ import annotations

import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    BadAnswer,
    ClientError,
    ConsumeContext,
    InvalidUse,
    Message,
    SendStatus,
)
from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.offset_store import LocalOffsets
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.protocol.routing import BrokerData, QueueData, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from tests.client.test_consuming import Collected, consumer_at, found
from tests.support.builders import received
from tests.support.scripted_broker import Script, pull_reply, scripted_brokers

ROUTE, PULL, SEND = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2


async def test_an_unreadable_answer_fails_its_send_only(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        script.next("a", SEND, Reply(0, {"msgId": "x", "queueOffset": "many"}))
        with pytest.raises(BadAnswer, match="many"):
            await producer.send(Message("T", b"x"))
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, Reply()),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, Reply(body=b"[[")),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, Reply(body=b'{"consumerIdList":{"a":1}}')),
        (RequestCode.QUERY_CONSUMER_OFFSET, Reply()),
        (RequestCode.QUERY_CONSUMER_OFFSET, Reply(0, {"offset": "far"})),
        (RequestCode.LOCK_BATCH_MQ, Reply(body=b"\xff")),
        (PULL, Reply(0, {"nextBeginOffset": "1"})),
        (PULL, Reply(19)),
        (PULL, pull_reply(19, -5)),
        (PULL, pull_reply(0, 5, b"no record")),
        (PULL, pull_reply(21, -1)),
    ],
)
async def test_a_consumer_survives_an_unreadable_answer(
    autojump_clock: trio.testing.MockClock, code: RequestCode, answer: Reply
) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", code, answer, answer)
        async with consumer_at(script, got, orderly=True):
            script.next("a", PULL, found(0, 1))
            await trio.sleep(10)
    assert got.offsets == [0, 1]


async def test_a_route_of_two_thousand_million_queues_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        for data in (
            TopicRouteData(queueDatas=[QueueData(brokerName="a", writeQueueNums=(1 << 31) - 1)]),
            TopicRouteData(queueDatas=[QueueData(brokerName="a", readQueueNums=(1 << 31) - 1)]),
            TopicRouteData(
                brokerDatas=[BrokerData({0: script.address("a")}, "a", "c")],
                orderTopicConf=f"a:{(1 << 31) - 1}",
                queueDatas=[QueueData(brokerName="a", readQueueNums=1, writeQueueNums=1)],
            ),
            TopicRouteData(orderTopicConf="a:" + "9" * 5000),
        ):
            script.next("namesrv", ROUTE, Reply(body=data.to_json()))
            with pytest.raises(BadAnswer, match="queues, the client takes at most"):
                await producer.publish_queues("huge")
        script.next("namesrv", ROUTE, Reply(body=b"{{"))
        with pytest.raises(BadAnswer, match="the route cannot be read"):
            await producer.publish_queues("huge")
        assert len(await producer.publish_queues("huge")) == 2


async def test_circular_offset_corrections_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        for start in (pull_reply(21, 0), pull_reply(21, 7)):
            script._scripted.clear()
            script.requests.clear()
            async with AsyncLitePullConsumer("g", topics={"T": "*"}, namesrv=script.namesrv, world=script.world()):
                script.next("a", PULL, *[start, pull_reply(21, 0)] * 10_000)
                await trio.sleep(20)
            assert script.count(PULL) < 250


async def test_a_failing_allocation_is_retried(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    got, asked = Collected(), []

    def allocation(*args: object) -> list[MessageQueue]:
        asked.append(args)
        if len(asked) < 3:
            raise ValueError("a mistake in the allocation")
        if len(asked) < 5:
            return [0]  # type: ignore[list-item]
        return [MessageQueue("T", "a", 0)]

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        async with consumer_at(script, got, allocation=allocation):
            script.next("a", PULL, found(0))
            await trio.sleep(10)
    assert got.offsets == [0]
    assert "a mistake in the allocation" in caplog.text
    assert "the queue is of type int" in caplog.text


async def test_a_consumer_survives_a_failed_offset_write(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    offsets = LocalOffsets(f"{tmp_path}", "c", "g")
    offsets._path.parent.mkdir(parents=True)
    (offsets._path.with_suffix(".json.tmp")).mkdir()  # so that the file cannot be opened
    offsets.update(MessageQueue("T", "a", 0), 5)
    await offsets.persist([])
    assert "not written" in caplog.text
    offsets._path.with_suffix(".json.tmp").rmdir()
    await offsets.persist([])
    assert await LocalOffsets(f"{tmp_path}", "c", "g").read(MessageQueue("T", "a", 0)) == 5


def test_a_listener_that_exits_its_thread_has_failed() -> None:
    def listener(messages: object, context: object) -> None:
        raise SystemExit(1)

    queue = MessageQueue("T", "a", 0)
    job = ConsumeJob(ProcessQueue(queue, 0, 0), [received(0)])
    job.run(listener, lambda: 0.0)
    assert job.failed
    assert isinstance(job.error, SystemExit)


async def test_invalid_addresses_affect_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        for address in ("", "nonsense", "host:port", ":", "[::1]:99999"):
            async with AsyncProducer(
                "p", namesrv=script.namesrv, world=script.world(), vip_channel=True, send_timeout=1
            ) as producer:
                script.next("namesrv", ROUTE, _route_to(script, address))
                with pytest.raises(ClientError):
                    await producer.send(Message("T", b"x"))


def _route_to(script: Script, address: str) -> Reply:
    data = TopicRouteData(
        brokerDatas=[BrokerData({0: address}, "a", "c")],
        queueDatas=[QueueData(brokerName="a", readQueueNums=1, writeQueueNums=1)],
    )
    return Reply(body=data.to_json())


async def test_a_running_consumer_survives_a_bad_subscription(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def listener(message: object) -> None:
        raise AssertionError

    async with scripted_brokers("a") as script, consumer_at(script, listener) as consumer:
        assert isinstance(consumer, AsyncPushConsumer)
        with pytest.raises(Exception, match="neither tags nor"):
            consumer.subscribe("T", 7)  # type: ignore[arg-type]
        consumer.subscribe("T", "a")


def test_a_listener_that_writes_nonsense_into_its_context_has_failed() -> None:
    for name, value in (("consumed", "all"), ("suspend", "1"), ("delay_level", "3")):

        def listener(messages: object, context: ConsumeContext, name: str = name, value: str = value) -> None:
            setattr(context, name, value)

        job = ConsumeJob(ProcessQueue(MessageQueue("T", "a", 0), 0, 0), [received(0)], orderly=True)
        job.run(listener, lambda: 0.0)
        assert job.failed
        assert isinstance(job.error, InvalidUse)
        assert job.context == ConsumeContext(job.context.queue, orderly=True)
