"""Ending transactions on the wire: 37 and 323, and the check 39 that a producer answers."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rocketlet.common.message_flags import PREPARED
from rocketlet.common.message_record import decode
from rocketlet.common.topic import HALF_TOPIC, TRANS_CHECK_MAX_TOPIC
from rocketlet.remoting.command import Command
from rocketlet.remoting.command import request as command_of
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    CheckTransactionStateHeader,
    EndTransactionHeader,
    ResumeCheckHalfMessageHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.config import FlushDiskType
from tests.support.memory_broker import Client, RunningBroker, memory_broker

QUICK = {"transaction_time_out": 1000, "transaction_check_interval": 2000, "transaction_check_max": 3}


async def prepare(one: RunningBroker, body: bytes = b"x", topic: str = "T") -> Command:
    return await one.send(topic, body, fields={"sysFlag": PREPARED}, TRAN_MSG="true", PGROUP="P")


def end_of(half: Command, how: int, **fields: Any) -> EndTransactionHeader:
    assert half.ext is not None
    given: dict[str, Any] = {
        "commitLogOffset": int(half.ext["msgId"][-16:], 16),
        "commitOrRollback": how,
        "tranStateTableOffset": int(half.ext["queueOffset"]),
        "producerGroup": "P",
    }
    return EndTransactionHeader(**(given | fields))


async def end(one: Client, half: Command, how: int, **fields: Any) -> int:
    return (await one.call(RequestCode.END_TRANSACTION, end_of(half, how, **fields))).code


async def bodies(one: RunningBroker, topic: str = "T") -> list[bytes]:
    return [bytes(record.body) for record in (await one.pull(topic, 0, 0)).records]


async def test_commit_and_rollback(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        first, second = await prepare(one, b"paid"), await prepare(one, b"never")
        assert first.code == second.code == 0
        assert (first.ext or {})["queueId"] == "0"
        assert await bodies(one) == []
        assert await end(one, first, COMMIT) == 0
        assert await end(one, second, ROLLBACK) == 0
        assert await bodies(one) == [b"paid"]
        for half in (first, second):
            for how in (COMMIT, ROLLBACK):
                assert await end(one, half, how) == ResponseCode.SYSTEM_ERROR
        assert await bodies(one) == [b"paid"]


async def test_an_unknown_state_is_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        half = await prepare(one)
        with trio.move_on_after(30) as waited:
            await end(one, half, UNKNOWN)
        assert waited.cancelled_caught
        assert await end(one, half, COMMIT) == 0


async def test_mismatched_requests_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        half = await prepare(one)
        assert await end(one, half, COMMIT, producerGroup="Q") == 1
        assert await end(one, half, COMMIT, tranStateTableOffset=7) == 1
        assert await end(one, half, COMMIT, commitLogOffset=3) == 1
        assert await bodies(one) == []


async def test_transactions_can_be_disabled(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(reject_transaction_message=True) as one:
        assert (await prepare(one)).code == ResponseCode.NO_PERMISSION


async def test_with_sync_flush_an_end_waits_for_its_flush(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as one:
        half = await prepare(one)
        assert await end(one, half, COMMIT) == 0
        assert one.broker.store.flushed.value == one.broker.store.log.end


class Producer:
    """A live producer that answers checks with given states, one-way, as Java's do."""

    def __init__(self, answers: dict[bytes, list[int]]) -> None:
        self.answers = answers
        self.checks: list[bytes] = []
        self.one: Client | None = None

    def check(self, request: Request) -> None:
        header: CheckTransactionStateHeader = request.header
        body = bytes(decode(request.body).body)
        self.checks.append(body)
        answers = self.answers[body]
        how = answers.pop(0) if len(answers) > 1 else answers[0]
        ended = EndTransactionHeader(
            header.commitLogOffset,
            how,
            header.tranStateTableOffset,
            "P",
            True,
            header.msgId or "",
            header.transactionId,
        )
        request.connection.send_oneway(command_of(RequestCode.END_TRANSACTION, ended))

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: Handler(self.check, CheckTransactionStateHeader)}


async def test_a_silent_producer_is_checked(autojump_clock: trio.testing.MockClock) -> None:
    producer = Producer(
        {b"yes": [COMMIT], b"no": [ROLLBACK], b"later": [UNKNOWN, UNKNOWN, COMMIT], b"never": [UNKNOWN]}
    )
    async with memory_broker(**QUICK) as one, one.client(producer.handlers) as client:
        await client.heartbeat("producer@1", producer="P")
        halves = [await prepare(one, body) for body in (b"yes", b"no", b"later", b"never")]
        await trio.sleep(30)
        assert await bodies(one) == [b"yes", b"later"]
        assert [producer.checks.count(body) for body in (b"yes", b"no", b"later", b"never")] == [1, 1, 3, 3]
        given_up = (await one.pull(TRANS_CHECK_MAX_TOPIC, 0, 0)).records
        assert [record.body for record in given_up] == [b"never"]
        for half in halves:
            assert await end(one, half, COMMIT) == 1, "the first end counts, under any name"
        assert await bodies(one) == [b"yes", b"later"]
        message_id = one.broker.identity.message_id(given_up[0].log_offset)
        producer.answers[b"never"] = [COMMIT]
        header = ResumeCheckHalfMessageHeader(message_id)
        assert (await one.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == 0
        await trio.sleep(10)
        assert await bodies(one) == [b"yes", b"later", b"never"]
        assert (await one.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == 1


@pytest.mark.parametrize("message_id", ["", "nonsense", "7F00000100002A9F00000000000FFFFF"])
async def test_resuming_nonsense(autojump_clock: trio.testing.MockClock, message_id: str) -> None:
    async with memory_broker() as one:
        header = ResumeCheckHalfMessageHeader(message_id)
        answer = await one.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert answer.code == 1
        assert "failed" in (answer.remark or "")


async def test_consumers_cannot_send_back_half_messages(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        assert (await one.send(HALF_TOPIC)).code == ResponseCode.NO_PERMISSION
