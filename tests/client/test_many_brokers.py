"""Name servers that name many brokers, most of them silent, or more than there can be."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncSimpleConsumer,
    AsyncTransactionProducer,
    BadAnswer,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    Refused,
    SendStatus,
    Sql,
    TransactionState,
)
from rocketlet.client.talking import session
from rocketlet.client.talking.namesrv_calls import MAX_BROKERS
from rocketlet.client.talking.side_by_side import AT_ONCE, for_each
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.protocol.routing import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from tests.client.test_consuming import Collected, consumer_at, found
from tests.support.scripted_broker import Script, scripted_brokers

A_FEW_TIMEOUTS = 15.0
HEART_BEAT, ROUTE = RequestCode.HEART_BEAT, RequestCode.GET_ROUTEINFO_BY_TOPIC


def given(script: Script) -> dict[str, Any]:
    return {"namesrv": script.namesrv, "world": script.world()}


def brokers(count: int) -> dict[str, BrokerData]:
    return {f"b{n}": BrokerData({0: f"10.8.{n >> 8}.{n & 255}:10911"}, f"b{n}", "c") for n in range(count)}


def route(table: dict[str, BrokerData]) -> bytes:
    """As Java writes it: with the ids of brokers bare."""
    queues = [QueueData(brokerName=name, readQueueNums=4, writeQueueNums=4) for name in table]
    data = TopicRouteData(brokerDatas=list(table.values()), queueDatas=queues)
    return data.to_json().replace(b'{"0":', b"{0:")


@asynccontextmanager
async def mostly_silent(silent: int = 300, queues: int = 1) -> AsyncIterator[Script]:
    async with scripted_brokers("a", queues=queues) as script:
        script.topics = {"T"}
        script.add_silent(silent)
        yield script


async def test_so_many_at_once_are_asked_and_no_more(autojump_clock: MockClock) -> None:
    running, most, ended = 0, 0, []

    async def ask(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(3)
        running -= 1
        ended.append(number)

    await for_each(range(3 * AT_ONCE), ask)
    assert (most, sorted(ended)) == (AT_ONCE, list(range(3 * AT_ONCE)))
    assert trio.current_time() < 10
    await for_each([], ask)
    await for_each([7], ask)
    assert ended[-1] == 7


@pytest.mark.parametrize("settings", [{}, {"orderly": True}])
async def test_a_consumer_starts_although_most_brokers_are_silent(
    autojump_clock: MockClock, settings: dict[str, Any]
) -> None:
    got = Collected()
    async with mostly_silent() as script:
        script.next("a", RequestCode.PULL_MESSAGE, found(0))
        began = trio.current_time()
        async with consumer_at(script, got, **settings) as consumer:
            assert trio.current_time() - began < A_FEW_TIMEOUTS
            await trio.sleep(30)
            assert consumer.queues() == {MessageQueue("T", "a", 0)}
            began = trio.current_time()
        assert trio.current_time() - began < A_FEW_TIMEOUTS
    assert got.offsets == [0]


async def test_all_kinds_of_clients_start_although_most_brokers_are_silent(autojump_clock: MockClock) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        raise AssertionError

    async with mostly_silent() as script:
        for client in (
            AsyncProducer("p", **given(script)),
            AsyncTransactionProducer("p", check, **given(script)),
            AsyncLitePullConsumer("g", topics={"T": "*"}, **given(script)),
            AsyncSimpleConsumer("g", topics={"T": "*"}, **given(script)),
        ):
            before, began = script.count(HEART_BEAT), trio.current_time()
            async with client:
                assert trio.current_time() - began < A_FEW_TIMEOUTS
                await trio.sleep(0.5)
                began = trio.current_time()
            assert trio.current_time() - began < A_FEW_TIMEOUTS
            assert script.count(HEART_BEAT) > before or type(client) is AsyncProducer


async def test_a_broker_that_answers_is_told_of_its_client_in_time_although_most_are_silent(
    autojump_clock: MockClock,
) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        raise AssertionError

    async with mostly_silent(1500) as script, AsyncTransactionProducer("p", check, **given(script)):
        for _ in range(2):
            before = script.count(HEART_BEAT)
            await trio.sleep(60)  # a broker forgets clients that it has not heard of for two minutes
            assert script.count(HEART_BEAT) > before


async def test_a_refused_filter_ends_a_start_among_silent_brokers(autojump_clock: MockClock) -> None:
    async with mostly_silent() as script:
        script.next("a", RequestCode.CHECK_CLIENT_CONFIG, Reply(23, remark="no such filter"))
        consumer = AsyncLitePullConsumer("g", topics={"T": Sql("a > 1")}, **given(script))
        with pytest.raises(Refused, match="no such filter"):
            async with consumer:
                raise AssertionError("it started")
        assert trio.current_time() < A_FEW_TIMEOUTS


async def test_offsets_are_committed_past_a_broker_that_is_gone(autojump_clock: MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", "b") as script:
        script.topics = {"T"}
        async with consumer_at(script, got, consume_from=ConsumeFrom.FIRST_OFFSET):
            script.next("b", RequestCode.PULL_MESSAGE, found(0))
            await trio.sleep(2)
            script.network.isolate(script.address("a"))
            script.network.cut(script.address("a"))
    committed = [ext for name, code, ext in script.requests if code == RequestCode.UPDATE_CONSUMER_OFFSET]
    assert {(ext["bname"], ext["commitOffset"]) for ext in committed} >= {("b", "1")}


async def test_more_brokers_than_there_can_be_are_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        raise AssertionError

    caplog.set_level(logging.INFO)
    table = brokers(50_000)
    few = {"b": BrokerData(dict(enumerate(broker.brokerAddrs[0] for broker in table.values())), "b", "c")}
    async with scripted_brokers("a") as script:
        async with AsyncProducer("p", **given(script)) as producer:
            for data in (table, few, {"b": BrokerData({0: "h" * 10_000 + ":1"}, "b", "c")}):
                script.next("namesrv", ROUTE, Reply(body=route(data)))
                with pytest.raises(BadAnswer, match=r"the route .*(at most|characters)"):
                    await producer.publish_queues("T")
            script.next("namesrv", ROUTE, Reply(body=TopicRouteData(orderTopicConf=";" * 4_000_000).to_json()))
            with pytest.raises(BadAnswer, match="the client takes at most"):
                await producer.publish_queues("T")
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
        told = script.count(HEART_BEAT)
        script.next(
            "namesrv", RequestCode.GET_BROKER_CLUSTER_INFO, Reply(body=ClusterInfo(table, {"c": list(table)}).to_json())
        )
        async with AsyncTransactionProducer("p", check, **given(script)):
            await trio.sleep(5)  # asked again, it tells the truth
            assert script.count(HEART_BEAT) > told
    assert "the brokers of the cluster are not known yet" in caplog.text


async def test_a_cluster_of_a_thousand_masters_with_slaves_is_none_too_many(autojump_clock: MockClock) -> None:
    table = brokers(1000)
    for number, broker in enumerate(table.values()):
        broker.brokerAddrs |= {1: f"10.7.{number >> 8}.{number & 255}:10911", 2: f"10.6.{number >> 8}.{number & 255}:1"}
    assert sum(len(broker.brokerAddrs) for broker in table.values()) < MAX_BROKERS
    async with scripted_brokers("a") as script, AsyncProducer("p", **given(script)) as producer:
        script.next("namesrv", ROUTE, Reply(body=route(table)))
        assert len(await producer.publish_queues("T")) == 4000


async def test_all_routes_together_have_no_more_brokers_than_some_may(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_MOST_ADDRESSES", 350)

    def named(topic: str) -> Reply:
        table = {name + topic: broker for name, broker in brokers(100).items()}
        for name, broker in table.items():
            broker.brokerName = name
        return Reply(body=route(table))

    async with scripted_brokers("a") as script, AsyncProducer("p", **given(script)) as producer:
        for topic in ("T1", "T2", "T3"):
            script.next("namesrv", ROUTE, named(topic))
            await producer.publish_queues(topic)
        script.next("namesrv", ROUTE, named("T4"))
        with pytest.raises(BadAnswer, match="the client would know 400 brokers"):
            await producer.publish_queues("T4")
        assert (await producer.send(Message("U", b"x"))).status is SendStatus.SEND_OK
