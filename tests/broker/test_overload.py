"""Stale requests: those that waited out a stall are refused, and no others; and groups that lag too far."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.overload import Overload
from rocketlet.remoting.command import Command
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import RunningBroker, memory_broker, tags


@dataclass
class StopWatch:
    """Stands still until set."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_requests_read_after_a_long_pass_are_stale(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = StopWatch()
    overload = Overload(Settings(BrokerConfig()), watch)
    overload.install()
    await trio.sleep(1)
    assert overload.waited_ms == 0
    overload.check(0)
    watch.seconds += 0.3  # within one pass, as a blocking call would
    await trio.sleep(0)
    assert overload.waited_ms == pytest.approx(300, abs=1)
    overload.check(300)
    with pytest.raises(Refused) as refused:
        overload.check(200)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert "period in queue: 300ms" in refused.value.remark
    assert caplog.messages == []
    await trio.sleep(0)
    assert overload.waited_ms == 0
    watch.seconds += 3
    with caplog.at_level(logging.WARNING):
        await trio.sleep(0)
    assert "3.0 s" in caplog.text
    overload.remove()


async def test_overload_protection_can_be_disabled(autojump_clock: MockClock) -> None:
    overload = Overload(Settings(BrokerConfig(broker_fast_failure_enable=False)))
    overload.waited_ms = 10_000
    overload.check(1)


async def standing_still(one: RunningBroker, seconds: float, call: object) -> Command:
    """The answer to a request that arrives during a stall."""
    answers: list[Command] = []
    watch = StopWatch()
    one.broker.parts.overload._now = watch
    one.broker.parts.overload._woke = 0

    async def ask() -> None:
        answers.append(await call)  # type: ignore[misc]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.lowlevel.checkpoint()
        watch.seconds += seconds
    return answers[0]


@pytest.mark.parametrize(("seconds", "code"), [(0.5, 0), (1.9, 0), (2.5, ResponseCode.SYSTEM_BUSY)])
async def test_sends(autojump_clock: MockClock, seconds: float, code: int) -> None:
    async with memory_broker(broker_fast_failure_enable=True) as one:
        await one.send("T")
        assert (await standing_still(one, seconds, one.send("T"))).code == code
        assert (await one.send("T")).code == 0


async def test_pulls_and_heartbeats_have_separate_limits(autojump_clock: MockClock) -> None:
    async with memory_broker(broker_fast_failure_enable=True) as one:
        await one.send("T")
        pull = one.call(
            RequestCode.PULL_MESSAGE,
            {"topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "consumerGroup": "G", "sysFlag": "4"},
        )
        assert (await standing_still(one, 5.5, pull)).code == ResponseCode.SYSTEM_BUSY
        beat = one.heartbeat("c", "CG", tags("T"))
        assert (await standing_still(one, 5.5, beat)).code == 0


async def test_a_group_that_lags_too_far_is_disabled(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"disable_consume_if_consumer_read_slowly": True, "consumer_fallbehind_threshold": 5_000}
    async with memory_broker(**settings) as one:
        for _ in range(10):
            await one.send("T", b"x" * 1000)
        one.broker.tables.offsets.commit("slow", "T", 0, 1)
        one.broker.tables.offsets.commit("quick", "T", 0, 8)
        one.broker.tables.groups.find("slow")
        one.broker.tables.groups.find("quick")
        await trio.sleep(181)
        assert (await one.pull("T", 0, 0, consumerGroup="slow")).code == ResponseCode.NO_PERMISSION
        assert (await one.pull("T", 0, 0, consumerGroup="quick")).code == 0
        assert "group slow is" in caplog.text
