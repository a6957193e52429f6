"""Servers that start later, or are briefly absent: clients find them soon, and a send waits for them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    SendFailed,
    SendStatus,
    Transaction,
    TransactionState,
    Unreachable,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_cluster import Cluster, memory_cluster
from tests.support.scripted_broker import CUT, scripted_brokers


@pytest.mark.parametrize("hour", [5, 40, 3600])
async def test_a_consumer_started_first_consumes_soon_after_its_servers_start(
    autojump_clock: trio.testing.MockClock, hour: int
) -> None:
    async with memory_cluster(namesrvs=0, brokers=0) as cluster:
        cluster.namesrvs = ["10.1.0.1:9876"]
        cluster.namesrv = cluster.namesrvs[0]
        async with AsyncLitePullConsumer(
            "g",
            topics={"T": "*"},
            namesrv=cluster.namesrv,
            world=cluster.world(),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            await trio.sleep(hour)
            await cluster.start_namesrv(0)
            await cluster.start("broker-a")
            async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
                await producer.send(Message("T", b"x"))
            sent = trio.current_time()
            found = await consumer.poll(60)
            assert [message.body for message in found] == [b"x"]
            assert trio.current_time() - sent <= 10


async def test_a_broker_started_before_its_name_server_registers_soon_after_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(namesrvs=0, brokers=0) as cluster:
        cluster.namesrvs = ["10.1.0.1:9876"]
        cluster.namesrv = cluster.namesrvs[0]
        await cluster.start("broker-a")
        await trio.sleep(5.5)
        await cluster.start_namesrv(0)
        await trio.sleep(1.5)
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_an_idle_transaction_producer_is_checked_about_old_transactions(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def unknown(transaction: Transaction) -> TransactionState:
        return TransactionState.UNKNOWN

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with memory_cluster(brokers=2, transaction_check_interval=10_000, transaction_time_out=5_000) as cluster:
        async with _transactions(cluster, check) as producer:
            for body in (b"1", b"2", b"3", b"4", b"5"):
                await producer.send_in_transaction(Message("T", body), unknown)
        async with (
            _transactions(cluster, check),
            AsyncPushConsumer(
                "g",
                listener,
                topics={"T": "*"},
                namesrv=cluster.namesrv,
                world=cluster.world(),
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ),
        ):
            await trio.sleep(60)
    assert sorted(got) == [b"1", b"2", b"3", b"4", b"5"]


def _transactions(cluster: Cluster, check: object) -> AsyncTransactionProducer:
    return AsyncTransactionProducer("p", check, namesrv=cluster.namesrv, world=cluster.world())  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [True, 1, "COMMIT", SystemExit(1)])
async def test_a_checker_that_answers_nonsense_is_asked_again(
    autojump_clock: trio.testing.MockClock, answer: object
) -> None:
    checked: list[ReceivedMessage] = []

    async def wrong(*asked: object) -> object:
        return True

    async def check(message: ReceivedMessage) -> object:
        checked.append(message)
        if isinstance(answer, BaseException):
            raise answer
        return answer if len(checked) < 3 else TransactionState.COMMIT

    async with (
        memory_cluster(brokers=1, transaction_check_interval=10_000, transaction_time_out=5_000) as cluster,
        _transactions(cluster, check) as producer,
    ):
        result = await producer.send_in_transaction(Message("T", b"x"), wrong)  # type: ignore[arg-type]
        assert result.state is TransactionState.UNKNOWN
        await trio.sleep(60)
        assert len(checked) >= 3
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_an_idle_transaction_producer_registers_with_a_cluster_started_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def check(message: ReceivedMessage) -> None:
        return None

    async with memory_cluster(namesrvs=0, brokers=0) as cluster:
        cluster.namesrvs = ["10.1.0.1:9876"]
        cluster.namesrv = cluster.namesrvs[0]
        async with _transactions(cluster, check):
            await trio.sleep(20)
            await cluster.start_namesrv(0)
            await cluster.start("broker-a")
            await trio.sleep(6)
            producers = cluster.brokers["broker-a"].clients.producers
            assert [member.client_id for member in producers.members("p")] != []


async def test_a_send_waits_for_the_only_broker_until_its_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        memory_cluster() as cluster,
        AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        await producer.send(Message("T", b"before"))
        await cluster.stop("broker-a")
        began = trio.current_time()
        with pytest.raises((SendFailed, Unreachable)) as caught:
            await producer.send(Message("T", b"x"))
        assert 2.8 <= trio.current_time() - began <= 3
        assert isinstance(caught.value, SendFailed)
        assert caught.value.tries == len(caught.value.causes) >= 5

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, "broker-a")
            result = await producer.send(Message("T", b"after"))
        assert result.status is SendStatus.SEND_OK


@pytest.mark.parametrize("way", ["queue", "selector", "sharding key"])
async def test_a_send_to_a_chosen_queue_waits_for_its_broker(autojump_clock: trio.testing.MockClock, way: str) -> None:
    async with (
        memory_cluster() as cluster,
        AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        queue = (await producer.send(Message("T", b"before", sharding_key="k"))).queue
        given: dict[str, Any] = {
            "queue": {"queue": queue},
            "selector": {"selector": lambda queues, message, argument: queue},
            "sharding key": {},
        }[way]
        message = Message("T", b"x", sharding_key="k" if way == "sharding key" else None)
        await cluster.stop(queue.broker_name)
        began = trio.current_time()
        with pytest.raises((SendFailed, Unreachable)):
            await producer.send(message, **given)
        assert 2.8 <= trio.current_time() - began <= 3
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, queue.broker_name)
            result = await producer.send(message, **given)
        assert (result.status, result.queue) == (SendStatus.SEND_OK, queue)


async def test_attempts_that_reached_the_broker_are_counted_and_spaced(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        script.next("a", RequestCode.SEND_MESSAGE_V2, CUT, CUT, CUT)
        began = trio.current_time()
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"))
        assert script.count(RequestCode.SEND_MESSAGE_V2) == 3
        assert trio.current_time() - began >= 0.15


async def test_a_send_goes_to_another_broker_without_a_pause(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a", "b") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        script.next("a", RequestCode.SEND_MESSAGE_V2, CUT)
        script.next("b", RequestCode.SEND_MESSAGE_V2, CUT)
        began = trio.current_time()
        await producer.send(Message("T", b"x"))
        assert script.count(RequestCode.SEND_MESSAGE_V2) == 3
        assert 0.05 <= trio.current_time() - began < 0.1  # one pause, after both had failed


async def test_a_pause_longer_than_an_attempts_timeout_is_no_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        settings = {"try_timeout": 0.06, "send_timeout": 10.0, "retries": 2}
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world(), **settings) as producer:
            await producer.send(Message("T", b"before"))
            await cluster.stop("broker-a")
            began = trio.current_time()
            with pytest.raises((SendFailed, Unreachable)):
                await producer.send(Message("T", b"x"))
            assert trio.current_time() - began > 9
