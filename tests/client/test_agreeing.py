"""Transactions and request-reply, on whole brokers in virtual time."""

from __future__ import annotations

import pytest
import trio

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ConsumeFrom,
    InvalidMessage,
    Message,
    ReceivedMessage,
    Refused,
    RequestTimedOut,
    Transaction,
    TransactionState,
)
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_cluster import Cluster, memory_cluster
from tests.support.scripted_broker import scripted_brokers, send_reply

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION


async def consumed(cluster: Cluster, topic: str, seconds: float) -> list[bytes]:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with AsyncPushConsumer(
        "g",
        listener,
        topics={topic: "*"},
        namesrv=cluster.namesrv,
        world=cluster.world(),
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await trio.sleep(seconds)
    return sorted(got)


async def commit(transaction: Transaction) -> TransactionState:
    return TransactionState.COMMIT


async def test_each_state_has_its_effect(autojump_clock: trio.testing.MockClock) -> None:
    checks: list[bytes] = []
    asked: dict[bytes, int] = {}

    async def execute(transaction: Transaction) -> TransactionState | None:
        assert transaction.argument == "argument"
        if transaction.message.body == b"raise":
            raise ValueError("the local transaction failed somewhere")
        return {b"yes": TransactionState.COMMIT, b"no": TransactionState.ROLLBACK}.get(transaction.message.body)

    async def check(message: ReceivedMessage) -> TransactionState:
        checks.append(message.body)
        asked[message.body] = asked.get(message.body, 0) + 1
        assert message.topic == "T"
        if message.body == b"raise":
            return TransactionState.ROLLBACK
        return TransactionState.COMMIT if asked[message.body] == 2 else TransactionState.UNKNOWN

    async with memory_cluster(transaction_check_interval=10_000, transaction_time_out=5_000) as cluster:
        async with AsyncTransactionProducer("p", check, namesrv=cluster.namesrv, world=cluster.world()) as producer:
            states = {}
            for body in (b"yes", b"no", b"later", b"raise"):
                result = await producer.send_in_transaction(Message("T", body), execute, "argument")
                states[body] = result.state
                assert result.transaction_id == result.message_id
            await trio.sleep(100)
        assert await consumed(cluster, "T", 40) == [b"later", b"yes"]
    assert states == {
        b"yes": TransactionState.COMMIT,
        b"no": TransactionState.ROLLBACK,
        b"later": TransactionState.UNKNOWN,
        b"raise": TransactionState.UNKNOWN,
    }
    assert sorted(checks) == [b"later", b"later", b"raise"]


async def test_another_member_of_the_group_answers_for_a_dead_one(autojump_clock: trio.testing.MockClock) -> None:
    async def unknown(transaction: Transaction) -> TransactionState:
        return TransactionState.UNKNOWN

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with memory_cluster(transaction_check_interval=10_000, transaction_time_out=5_000) as cluster:
        async with AsyncTransactionProducer("p", check, namesrv=cluster.namesrv, world=cluster.world()) as producer:
            await producer.send_in_transaction(Message("T", b"orphan"), unknown)
        async with AsyncTransactionProducer("p", check, namesrv=cluster.namesrv, world=cluster.world()) as producer:
            await producer.send(Message("T", b"plain"))
            await trio.sleep(60)
        assert await consumed(cluster, "T", 40) == [b"orphan", b"plain"]


async def test_a_half_message_that_is_not_durable_is_rolled_back(autojump_clock: trio.testing.MockClock) -> None:
    executed: list[Transaction] = []

    async def execute(transaction: Transaction) -> TransactionState:
        executed.append(transaction)
        return TransactionState.COMMIT

    async def check(message: ReceivedMessage) -> None:
        return None

    async with scripted_brokers("a") as script:
        script.next("a", SEND, lambda request: send_reply(script, "a", request, 10), Reply(13, remark="no"))
        async with AsyncTransactionProducer("p", check, namesrv=script.namesrv, world=script.world()) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), execute)
            assert result.state is TransactionState.ROLLBACK
            with pytest.raises(Refused):
                await producer.send_in_transaction(Message("T", b"x"), execute)
            with pytest.raises(InvalidMessage, match="delayed"):
                await producer.send_in_transaction(Message("T", b"x", delay_level=1), execute)
            assert executed == []
            await producer.send_in_transaction(Message("T", b"x"), execute)
            await trio.sleep(1)
        ends = script.headers(END)
        half = script.headers(SEND)[0]
    assert [end["commitOrRollback"] for end in ends] == ["12", "8"]
    assert (ends[0]["producerGroup"], ends[0]["fromTransactionCheck"]) == ("p", "false")
    assert half["f"] == "4"
    assert "TRAN_MSG\x01true" in half["i"]
    assert "PGROUP\x01p" in half["i"]


async def test_a_request_gets_its_reply(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        memory_cluster() as cluster,
        AsyncProducer("replies", namesrv=cluster.namesrv, world=cluster.world()) as replies,
        AsyncProducer("asks", namesrv=cluster.namesrv, world=cluster.world()) as asks,
    ):

        async def answer(message: ReceivedMessage) -> None:
            await replies.reply(message, b"re:" + message.body)

        await asks.create_topic("T", 2)
        async with AsyncPushConsumer("g", answer, topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world()):
            await trio.sleep(5)
            for body in (b"one", b"two", b"x" * 10_000):
                reply = await asks.request(Message("T", body, tags="a"), timeout=8)
                assert reply.body == b"re:" + body
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"


async def test_a_request_that_nobody_answers_times_out(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        memory_cluster() as cluster,
        AsyncProducer("asks", namesrv=cluster.namesrv, world=cluster.world()) as asks,
    ):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match="is a consumer of the topic running"):
            await asks.request(Message("T", b"anybody?"), timeout=1.5)
        assert trio.current_time() - began == pytest.approx(1.5, abs=0.1)


async def test_only_a_request_can_be_replied_to(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        memory_cluster() as cluster,
        AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        sent = await producer.send(Message("T", b"x"))
        message = await producer.view(sent.offset_message_id)
        with pytest.raises(InvalidMessage, match="asks for no reply"):
            await producer.reply(message, b"y")


async def test_messages_are_found_by_key_and_id(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        memory_cluster(brokers=2) as cluster,
        AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        await producer.create_topic("T", 2)
        await trio.sleep(1)
        sent = [await producer.send(Message("T", b"%d" % n, keys=[f"k{n}", "all"])) for n in range(8)]
        await trio.sleep(1)
        assert {message.body for message in await producer.query("T", "all")} == {b"%d" % n for n in range(8)}
        assert [message.body for message in await producer.query("T", "k3")] == [b"3"]
        assert await producer.query("T", "nobody") == []
        assert len(await producer.query("T", "all", at_most=3)) == 3
        assert (await producer.view(sent[5].message_id, "T")).body == b"5"
        found = await producer.view(sent[6].offset_message_id)
        assert (found.body, found.queue) == (b"6", sent[6].queue)


async def test_a_traced_message_shows_its_history(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster(trace_topic_enable=True) as cluster:
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world(), trace=True) as producer:
            sent = await producer.send(Message("T", b"x", keys=["k"]))

        async def listener(message: ReceivedMessage) -> None:
            raise ValueError("not this time")

        async with AsyncPushConsumer(
            "g", listener, topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world(), trace=True
        ):
            await trio.sleep(5)
        async with AsyncProducer("reader", namesrv=cluster.namesrv, world=cluster.world()) as reader:
            traces = await reader.query("RMQ_SYS_TRACE_TOPIC", sent.message_id)
    records = [record.split("\x01") for trace in traces for record in trace.body.decode().split("\x02") if record]
    told = {record[0]: record for record in records}
    assert set(told) == {"Pub", "SubBefore", "SubAfter"}
    assert told["Pub"][3:8] == ["p", "T", sent.message_id, "", "k"]
    assert told["Pub"][12:] == [sent.offset_message_id, "true"]
    assert told["SubBefore"][4] == told["SubAfter"][1]
    assert told["SubAfter"][4] == "false"
