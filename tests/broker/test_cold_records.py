"""Requests about one message of long ago: what only the disk has is read beside the loop."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

from rocketlet.common.message_flags import PREPARED
from rocketlet.metrics.page import Page
from rocketlet.remoting.command import Command
from rocketlet.remoting.protocol.inspection import QueryConsumeQueueHeader
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    EndTransactionHeader,
    ResumeCheckHalfMessageHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store import lookup
from tests.support.memory_broker import RunningBroker, memory_broker, tags


@pytest.fixture
def read_beside(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What look-ups had read in a worker thread."""
    found: list[object] = []
    offload = lookup.offload

    async def noted(disk: Any, function: Callable[[], Any]) -> Any:
        found.append(function)
        return await offload(disk, function)

    monkeypatch.setattr(lookup, "offload", noted)
    return found


def log_offset(sent: Command) -> int:
    return int((sent.ext or {})["msgId"][-16:], 16)


async def half(one: RunningBroker) -> Command:
    return await one.send("T", b"half", fields={"sysFlag": PREPARED}, TRAN_MSG="true", PGROUP="P")


async def send_back(one: RunningBroker) -> int:
    sent = await one.send("T", b"1")
    one.disk.cold = True
    header = ConsumerSendMsgBackHeader(offset=log_offset(sent), group="CG", delayLevel=0, originTopic="T")
    return (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code


def end_of(sent: Command, how: int) -> EndTransactionHeader:
    return EndTransactionHeader(
        commitLogOffset=log_offset(sent),
        commitOrRollback=how,
        tranStateTableOffset=int((sent.ext or {})["queueOffset"]),
        producerGroup="P",
    )


async def commit(one: RunningBroker) -> int:
    sent = await half(one)
    one.disk.cold = True
    return (await one.call(RequestCode.END_TRANSACTION, end_of(sent, COMMIT))).code


async def roll_back(one: RunningBroker) -> int:
    sent = await half(one)
    one.disk.cold = True
    return (await one.call(RequestCode.END_TRANSACTION, end_of(sent, ROLLBACK))).code


async def first_offset(one: RunningBroker) -> int:
    sent = await one.send("T", b"1")
    one.disk.cold = True
    header = QueryConsumerOffsetHeader(consumerGroup="new", topic="T", queueId=int((sent.ext or {})["queueId"]))
    return (await one.call(RequestCode.QUERY_CONSUMER_OFFSET, header)).code


async def entries(one: RunningBroker) -> int:
    sent = await one.send("T", b"1")
    one.disk.cold = True
    header = QueryConsumeQueueHeader(queueId=int((sent.ext or {})["queueId"]), index=0, topic="T", count=10)
    return (await one.call(RequestCode.QUERY_CONSUME_QUEUE, header)).code


async def runtime_info(one: RunningBroker) -> int:
    await one.send("T", b"1")
    one.disk.cold = True
    return (await one.call(RequestCode.GET_BROKER_RUNTIME_INFO)).code


async def resume(one: RunningBroker) -> int:
    sent = await half(one)
    one.disk.cold = True
    header = ResumeCheckHalfMessageHeader(msgId=(sent.ext or {})["msgId"])
    return (await one.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code


@pytest.mark.parametrize("ask", [send_back, commit, roll_back, resume, first_offset, entries, runtime_info])
async def test_a_cold_page_is_not_read_on_the_loop(
    autojump_clock: MockClock, read_beside: list[object], ask: Callable[[RunningBroker], Awaitable[int]]
) -> None:
    async with memory_broker() as one:
        assert await ask(one) == 0
        assert read_beside


async def test_a_change_that_had_to_wait_is_audited_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketlet.audit")
    async with memory_broker() as one:
        assert await resume(one) == 0
    lines = [json.loads(record.message) for record in caplog.records if record.name == "rocketlet.audit"]
    assert [line["outcome"] for line in lines] == ["done"]


async def test_a_page_of_metrics_waits_for_old_messages_beside_the_loop(
    autojump_clock: MockClock, read_beside: list[object]
) -> None:
    async with memory_broker() as one:
        await one.send("T", b"1")
        await one.heartbeat("c", "CG", tags("T"))
        one.broker.tables.offsets.commit("CG", "T", 0, 0)
        one.disk.cold = True
        page = Page(1000)
        for wait in one.broker.metrics.fill(page):
            if wait is not None:
                await wait()
        assert read_beside


async def test_a_page_of_metrics_is_made_in_steps_of_some_queues(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        one.broker.tables.topics.create("Wide", 5000, reason="for a test")
        before = sum(1 for _ in one.broker.metrics.fill(Page(1000)))
        one.broker.tables.groups.find("CG")
        one.broker.tables.offsets.commit("CG", "Wide", 0, 0)
        for queue_id in range(5000):
            one.broker.statistics.pull_flow("CG", "Wide", queue_id)
        assert sum(1 for _ in one.broker.metrics.fill(Page(1000))) > before + 40
