"""Events about corrected offsets: in the topic that monitoring reads, and limited in number."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock

from rocketlet.broker import offset_moved
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.topic import OFFSET_MOVED_EVENT
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import RunningBroker, memory_broker


async def events(one: RunningBroker) -> list[dict[str, object]]:
    return [json.loads(record.body) for record in (await one.pull(OFFSET_MOVED_EVENT, 0, 0)).records]


async def test_a_corrected_pull_offset_stores_an_event(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        assert (await one.pull("T", 0, 7)).code == ResponseCode.PULL_OFFSET_MOVED
        (record,) = (await one.pull(OFFSET_MOVED_EVENT, 0, 0)).records
        assert json.loads(record.body) == {
            "consumerGroup": "CG",
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "offsetNew": 1,
            "offsetRequest": 7,
        }
        properties = decode_bytes(record.properties)
        assert (properties["TAGS"], properties["KEYS"]) == ("CG", "T")
        assert one.broker.statistics.put.messages == 2


async def test_one_queue_of_a_group_gets_one_event_a_minute(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        for offset in (7, 8, 9):
            await one.pull("T", 0, offset)
        await one.pull("T", 0, 7, consumerGroup="other")
        assert len(await events(one)) == 2
        await trio.sleep(60)
        await one.pull("T", 0, 7)
        assert len(await events(one)) == 3


async def test_events_are_limited_in_total(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_moved, "MAX_PER_MINUTE", 5)
    async with memory_broker() as one:
        await one.send("T")
        for number in range(20):
            await one.pull("T", 0, 7, consumerGroup=f"g{number}")
        assert len(await events(one)) == 5


async def test_pulls_of_events_store_no_events(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        await one.pull("T", 0, 7)
        await one.pull(OFFSET_MOVED_EVENT, 0, 70)
        assert len(await events(one)) == 1


async def test_a_broker_that_cannot_store_the_event_still_answers(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        one.disk.capacity = 1
        await one.broker.store._retention.tick()
        assert (await one.pull("T", 0, 7)).code == ResponseCode.PULL_OFFSET_MOVED
        one.disk.capacity = None
