"""How many modules a send and a pull cross, from the frame to the answer: what a reader has to keep in mind.

Counted are our modules with a function called in between, on a broker in memory that has seen the topic, the group and
the tag before. The bounds are a decision; if a change needs another module, see what it can replace.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from trio.testing import MockClock

from rocketlet.common.subscription import parse_tags
from rocketlet.remoting.dispatch import Dispatch
from rocketlet.remoting.frame_codec import cut
from rocketlet.remoting.protocol.membership import SubscriptionData
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import RunningBroker, memory_broker

ROOT = Path(__file__).parent.parent.parent
NOT_OURS = {"tests", ".venv"}
MAX_PER_SEND, MAX_PER_PULL = 8, 10


class Crossed:
    """A profile function that records modules between the broker's next frame and its answer."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.is_done = False
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self.is_done:
            return
        if event == "return":
            self._is_on = self._is_on or (code is cut.__code__ and self._is_for_broker(frame))
            self.is_done = self._is_on and code is Dispatch._serve.__code__
        elif event == "call" and self._is_on:
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in NOT_OURS:
                self.modules[str(path.relative_to(ROOT))] = None

    @staticmethod
    def _is_for_broker(frame: FrameType) -> bool:
        turn = frame.f_back
        dispatch = turn.f_locals.get("self") if turn is not None else None
        return isinstance(dispatch, Dispatch) and RequestCode.SEND_MESSAGE in dispatch._entries


async def crossed_by(request: Callable[[], Awaitable[Any]]) -> list[str]:
    """The modules in order of their first call; the request has to succeed."""
    crossed = Crossed()
    sys.setprofile(crossed)
    try:
        answer = await request()
    finally:
        sys.setprofile(None)
    assert answer.code == 0
    assert crossed.is_done
    return list(crossed.modules)


async def send(one: RunningBroker) -> Any:
    return await one.send("T", b"body", TAGS="A", KEYS="k", WAIT="true")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_send_crosses_few_modules(autojump_clock: MockClock, flush: str) -> None:
    async with memory_broker(flush_disk_type=flush) as one:
        for _ in range(2):
            await send(one)
        modules = await crossed_by(lambda: send(one))
        assert modules[:3] == ["remoting/request_reader.py", "remoting/dispatch.py", "broker/handlers/send_message.py"]
        assert len(modules) <= MAX_PER_SEND, modules


async def test_a_pull_with_its_own_subscription_crosses_few_modules(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for _ in range(2):
            await send(one)
            await one.pull("T", 0, 0)
        modules = await crossed_by(lambda: one.pull("T", 0, 0))
        assert modules[:3] == ["remoting/request_reader.py", "remoting/dispatch.py", "broker/handlers/pull_message.py"]
        assert len(modules) <= MAX_PER_PULL, modules


@pytest.mark.parametrize("expression", ["*", "A || B"])
async def test_a_pull_using_a_heartbeats_subscription_crosses_few_modules(
    autojump_clock: MockClock, expression: str
) -> None:
    async with memory_broker() as one:
        await send(one)
        await send(one)
        tags = parse_tags("T", expression, 1)
        subscription = SubscriptionData("T", expression, sorted(tags.tags), sorted(tags.codes), subVersion=1)
        await one.heartbeat("client", "CG", subscription)
        fields = {"sysFlag": 0, "subVersion": 1, "subscription": None}
        await one.pull("T", 0, 0, **fields)
        modules = await crossed_by(lambda: one.pull("T", 0, 0, **fields))
        assert len(modules) <= MAX_PER_PULL, modules
