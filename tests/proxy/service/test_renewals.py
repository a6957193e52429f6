"""Messages in the hands of push consumers: few tasks ask brokers, however many messages there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketlet.common.receipt_handle import ReceiptHandle
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service import renewals as module
from rocketlet.proxy.service.renewals import Renewals
from tests.support.virtual_time import START_MS


class Consumer:
    """What renewals know of a connection."""

    def __init__(self) -> None:
        self.when_closed: list[Callable[[], None]] = []


class Brokers:
    """Answers nobody, and counts how many wait at once."""

    def __init__(self) -> None:
        self.masters = {"broker-a": "10.0.0.1:10911"}
        self.asked = self.waiting = self.most = 0

    async def ask(self, *_: object) -> Any:
        self.asked += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await trio.sleep(0.01)
        self.waiting -= 1
        raise module.ClientError("nobody is here")


def handle(offset: int) -> ReceiptHandle:
    return ReceiptHandle(offset, START_MS, 60_000, 0, 0, "broker-a", 0, offset)


async def test_a_consumer_that_goes_with_many_messages_makes_no_task_of_each(autojump_clock: MockClock) -> None:
    brokers, consumer = Brokers(), Consumer()
    renewals = Renewals(ProxyConfig(), brokers, lambda: START_MS)  # type: ignore[arg-type]
    for offset in range(300):
        renewals.hold(consumer, "CG", "T", handle(offset))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renewals.run)
        await trio.sleep(0.1)
        before = trio.lowlevel.current_statistics().tasks_living
        [closed] = consumer.when_closed
        closed()
        await trio.sleep(0)
        assert trio.lowlevel.current_statistics().tasks_living == before
        await trio.sleep(1)
        assert (brokers.asked, len(renewals)) == (300, 0)
        assert brokers.most <= 32
        nursery.cancel_scope.cancel()


async def test_what_was_released_does_not_pile_up(autojump_clock: MockClock) -> None:
    renewals = Renewals(ProxyConfig(), Brokers(), lambda: START_MS)  # type: ignore[arg-type]
    consumer = Consumer()
    renewals.hold(consumer, "CG", "T", handle(0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renewals.run)
        for offset in range(1, 1000):
            renewals.hold(consumer, "CG", "T", handle(offset))
            renewals.release("CG", str(handle(offset)))
        await trio.sleep(1.5)
        assert len(renewals._due) < 100
        assert len(renewals) == 1
        nursery.cancel_scope.cancel()


async def test_what_waits_to_be_asked_is_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_DUE", 10)
    renewals = Renewals(ProxyConfig(), Brokers(), lambda: START_MS)  # type: ignore[arg-type]
    for offset in range(20):
        renewals.give_back("CG", "T", handle(offset))
    assert "no more are taken" in caplog.text
