"""Brokers and name servers that mean harm: floods of requests, answers that unfold, numbers out of range. The client
refuses what it cannot hold, and goes on."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.client import AsyncSimpleConsumer, AsyncTransactionProducer, BadAnswer, ReceivedMessage, TransactionState
from rocketlet.client.consuming.push_consumer import MOST_DIRECT
from rocketlet.client.sending.transaction_producer import MOST_CHECKED, MOST_CHECKS
from rocketlet.common import message_flags
from rocketlet.common.message_record import encode
from rocketlet.remoting.command import ONEWAY, Command, request
from rocketlet.remoting.frame_codec import encode as frame_of
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.protocol.inspection import ConsumeMessageDirectlyHeader
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.client.test_consuming import consumer_at
from tests.support.builders import record
from tests.support.scripted_broker import Script, scripted_brokers

CHECK, END = RequestCode.CHECK_TRANSACTION_STATE, RequestCode.END_TRANSACTION


def given(script: Script) -> dict[str, Any]:
    return {"namesrv": script.namesrv, "world": script.world()}


def bomb(size: int) -> bytes:
    """A record whose body unfolds into this many bytes."""
    return encode(record(body=zlib.compress(bytes(size)), sys_flag=message_flags.COMPRESSED))


async def ask(script: Script, body: bytes, count: int = 1) -> None:
    """Ask about so many transactions at once."""
    command = request(CHECK, CheckTransactionStateHeader(0, 0, "", "", "", "a"), body)
    command.flag = ONEWAY
    script.clients["a"].send([frame_of(command)] * count)
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
