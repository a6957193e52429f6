"""Brokers and name servers that mean harm: floods of requests, answers that unfold, numbers out of range. The client
refuses what it cannot hold, and goes on."""

from __future__ import annotations

import logging
import zlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncSimpleConsumer,
    AsyncTransactionProducer,
    BadAnswer,
    Message,
    ReceivedMessage,
    SendFailed,
    TransactionState,
)
from rocketlet.client.consuming.push_consumer import MOST_DIRECT
from rocketlet.client.sending.transaction_producer import MOST_CHECKED, MOST_CHECKS
from rocketlet.common import message_flags
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import encode
from rocketlet.remoting.command import ONEWAY, Command, request
from rocketlet.remoting.frame_codec import encode as frame_of
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.protocol.inspection import ConsumeMessageDirectlyHeader
from rocketlet.remoting.protocol.membership import ConsumerListBody
from rocketlet.remoting.protocol.offsets import ResetOffsetBody, ResetOffsetHeader
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.client.test_consuming import Collected, consumer_at, found
from tests.support.builders import record
from tests.support.scripted_broker import Script, scripted_brokers

CHECK, END = RequestCode.CHECK_TRANSACTION_STATE, RequestCode.END_TRANSACTION


def given(script: Script) -> dict[str, Any]:
    return {"namesrv": script.namesrv, "world": script.world()}


def bomb(size: int) -> bytes:
    """A record whose body unfolds into this many bytes."""
    return encode(record(body=zlib.compress(bytes(size)), sys_flag=message_flags.COMPRESSED))


def ask_soon(script: Script, body: bytes, count: int = 1) -> None:
    """Ask about so many transactions at once."""
    command = request(CHECK, CheckTransactionStateHeader(0, 0, "", "", "", "a"), body)
    command.flag = ONEWAY
    script.clients["a"].send([frame_of(command)] * count)


async def ask(script: Script, body: bytes, count: int = 1) -> None:
    """The same, and wait until the client has them."""
    ask_soon(script, body, count)
    await wait_all_tasks_blocked(0.01)


async def test_a_flood_of_checks_is_held_back(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    may_answer = trio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        await may_answer.wait()
        return TransactionState.COMMIT

    async with scripted_brokers("a") as script, AsyncTransactionProducer("p", check, **given(script)):
        await trio.sleep(1)
        before = trio.lowlevel.current_statistics().tasks_living
        await ask(script, encode(record()), 3 * MOST_CHECKS)
        assert trio.lowlevel.current_statistics().tasks_living == before + MOST_CHECKS
        may_answer.set()
        await trio.sleep(1)
        assert script.count(END) == MOST_CHECKS
        await ask(script, encode(record()))
        assert script.count(END) == MOST_CHECKS + 1
    assert caplog.text.count("is dropped") == 1


async def test_checks_hold_no_more_than_so_many_bytes(autojump_clock: MockClock) -> None:
    sizes: list[int] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        sizes.append(len(message.body))
        await trio.sleep(3600)
        return TransactionState.COMMIT

    async with scripted_brokers("a") as script, AsyncTransactionProducer("p", check, **given(script)):
        await trio.sleep(1)
        await ask(script, bomb(MOST_CHECKED // 4), 8)
    assert sizes == [MOST_CHECKED // 4] * 4


async def test_a_check_that_is_unreadable_is_told_of_without_a_traceback(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        scripted_brokers("a") as script,
        AsyncTransactionProducer("p", check, max_inflated_size=1 << 20, **given(script)),
    ):
        for body in (b"no record", bomb(2 << 20)):
            await trio.sleep(1)
            await ask(script, body)
        await ask(script, encode(record()))
        assert script.count(END) == 1
    assert caplog.text.count("its message is unreadable") == 2
    assert "Traceback" not in caplog.text


async def test_a_flood_of_direct_consumptions_is_refused(autojump_clock: MockClock) -> None:
    may_end = trio.Event()
    called = []

    async def listener(message: ReceivedMessage) -> None:
        called.append(message)
        await may_end.wait()

    header = ConsumeMessageDirectlyHeader("g", clientId="", brokerName="a")

    async def consume(script: Script, body: bytes) -> Command:
        return await script.clients["a"].call(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body), 30)

    async with scripted_brokers("a") as script, consumer_at(script, listener, threads=4, max_inflated_size=1 << 20):
        await trio.sleep(1)
        frame = frame_of(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, encode(record())))
        for _ in range(2):  # a lost connection does not end the listener, which still has its messages
            script.clients["a"].send([frame] * MOST_DIRECT)
            await wait_all_tasks_blocked(0.01)
            script.clients["a"].close()
            await trio.sleep(60)
        answer = await consume(script, encode(record()))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "wait for the listener already" in (answer.remark or "")
        may_end.set()
        await trio.sleep(1)
        assert (await consume(script, encode(record()))).code == ResponseCode.SUCCESS
        for body in (b"no record", bomb(2 << 20)):
            assert (await consume(script, body)).code == ResponseCode.SYSTEM_ERROR
    assert len(called) == MOST_DIRECT + 1


async def test_messages_of_a_pop_that_lie_far_apart_are_not_acknowledged(autojump_clock: MockClock) -> None:
    """With a bit for each offset in between that took all memory."""
    ext = {"popTime": "1", "invisibleTime": "1", "reviveQid": "0", "restNum": "0", "startOffsetInfo": "0 0 5"}
    async with (
        scripted_brokers("a") as script,
        AsyncSimpleConsumer("g", topics={"T": "*"}, **given(script)) as consumer,
    ):
        script.next("a", RequestCode.POP_MESSAGE, Reply(0, ext, encode(record(1 << 62))))
        messages = await consumer.receive()
        with pytest.raises(BadAnswer, match="popped together lie at the offsets 5 to 4611686018427387904"):
            await consumer.ack(messages)


@pytest.mark.parametrize("tags", ["*", "a"])
async def test_an_answer_unfolds_no_further_than_some_messages_may(autojump_clock: MockClock, tags: str) -> None:
    """What is left out is pulled again: it may be meant so."""
    limit = 1 << 20

    def bombs(first: int) -> Reply:
        body = zlib.compress(bytes(limit))
        return found(*range(first, 10), body=body, sys_flag=message_flags.COMPRESSED)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        settings = {"max_inflated_size": limit, **given(script)}
        got = Collected()
        script.next("a", RequestCode.PULL_MESSAGE, bombs(0), bombs(5))
        async with consumer_at(script, got, tags, max_inflated_size=limit):
            await trio.sleep(5)
        assert got.offsets == list(range(10))
        script.next("a", RequestCode.PULL_MESSAGE, bombs(0), bombs(5))
        polled = []
        async with AsyncLitePullConsumer("g", topics={"T": tags}, **settings) as lite:
            while len(polled) < 10:
                polled += [message.queue_offset for message in await lite.poll(5)]
        assert polled == list(range(10))
        script.next("a", RequestCode.PULL_MESSAGE, bombs(0))
        async with AsyncPullConsumer("g", **settings) as puller:
            pulled = await puller.pull(MessageQueue("T", "a", 0), 0, selection=tags)
        assert (len(pulled.messages), pulled.next_offset) == (5, 5)
    asked = [int(ext["queueOffset"]) for ext in script.headers(RequestCode.PULL_MESSAGE)]
    assert {0, 5, 10} <= set(asked)


async def test_answers_that_come_when_far_too_much_waits_are_not_taken(autojump_clock: MockClock) -> None:
    may_end = trio.Event()
    got: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message)
        await may_end.wait()

    size = 1 << 20
    async with scripted_brokers("a", queues=8) as script:
        script.topics = {"T"}
        async with consumer_at(script, listener, threads=1, max_bytes=size):
            script.next("a", RequestCode.PULL_MESSAGE, *[found(0, body=bytes(size))] * 8)
            await trio.sleep(5)
            may_end.set()
            await trio.sleep(5)
    assert len(got) == 2  # of eight; the others are pulled again, and the script has no more of them


async def test_a_remark_of_megabytes_does_not_fill_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_brokers("a") as script, AsyncProducer("p", retries=1, **given(script)) as producer:
        script.next("a", RequestCode.HEART_BEAT, Reply(1, remark="r" * 1_000_000))
        script.next("a", RequestCode.SEND_MESSAGE_V2, *[Reply(1, remark="r" * 1_000_000)] * 2)
        with pytest.raises(SendFailed) as failed:
            await producer.send(Message("T", b"x"))
        assert len(str(failed.value)) < 10_000
        await trio.sleep(60)
    assert "rrr" in caplog.text
    assert len(caplog.text) < 50_000


async def test_a_group_of_more_members_than_there_can_be_is_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        members = ConsumerListBody([f"c{n}" for n in range(100_001)])
        script.next("a", RequestCode.GET_CONSUMER_LIST_BY_GROUP, Reply(body=members.to_json()))
        script.next("a", RequestCode.PULL_MESSAGE, found(0))
        async with consumer_at(script, got):
            await trio.sleep(10)
    assert "has 100001 members" in caplog.text
    assert got.offsets == [0]


async def test_a_reset_of_more_queues_than_there_can_be_is_refused(autojump_clock: MockClock) -> None:
    async with scripted_brokers("a") as script, consumer_at(script, Collected()):
        table = {MessageQueue("T", "a", number): 0 for number in range(30_000)}
        asked = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetHeader(0, "T", "g"))
        asked.body = ResetOffsetBody(table).to_json()
        answer = await script.clients["a"].call(asked, 5)
        assert "are allowed" in (answer.remark or "")


async def test_a_flood_of_checks_keeps_no_client_from_ending(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        await trio.sleep(1)
        return TransactionState.COMMIT

    async def flood(script: Script) -> None:
        while True:
            ask_soon(script, encode(record()), 10)
            await trio.lowlevel.checkpoint()

    async with scripted_brokers("a") as script, trio.open_nursery() as nursery:
        async with AsyncTransactionProducer("p", check, **given(script)):
            await trio.sleep(1)
            nursery.start_soon(flood, script)
            for _ in range(100):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert "Traceback" not in caplog.text
