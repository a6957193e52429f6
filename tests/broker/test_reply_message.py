"""Replies reach the waiting client and are stored; otherwise their sender gets the reason."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rocketlet.common.message_properties import decode, encode
from rocketlet.remoting.command import Command
from rocketlet.remoting.handler import DEFERRED, Deferred, Handler, Reply, Request
from rocketlet.remoting.protocol.sending import PushReplyMessageHeader, SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import Client, RunningBroker, memory_broker
from tests.support.virtual_time import START_MS

TOPIC = "DefaultCluster_REPLY_TOPIC"


async def reply(one: Client, code: int = RequestCode.SEND_REPLY_MESSAGE_V2, **properties: str) -> Command:
    fields: dict[str, Any] = {
        "queueId": 0, "topic": TOPIC, "producerGroup": "R", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "bornTimestamp": START_MS, "properties": encode({"MSG_TYPE": "reply", "CORRELATION_ID": "c-1"} | properties),
    }  # fmt: skip
    header = SendMessageHeader(**fields) if code == RequestCode.SEND_REPLY_MESSAGE else SendMessageHeaderV2(**fields)
    return await one.call(code, header, b"pong")


class Requester:
    """The waiting client: records what is pushed to it, and answers with `code`, or not at all."""

    def __init__(self, code: int | None = ResponseCode.SUCCESS) -> None:
        self.code = code
        self.pushed: list[Request] = []

    def take(self, request: Request) -> Reply | Deferred:
        self.pushed.append(request)
        return DEFERRED if self.code is None else Reply(self.code, remark="as told")

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: Handler(self.take, PushReplyMessageHeader)}


async def stored(one: RunningBroker) -> list[bytes]:
    return [record.body for record in (await one.pull(TOPIC, 0, 0)).records]


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_is_pushed_and_stored(autojump_clock: trio.testing.MockClock, code: int) -> None:
    requester = Requester()
    async with memory_broker() as one, one.client(requester.handlers) as waiting:
        await waiting.heartbeat("asker@1", producer="Q")
        answer = await reply(one, code, REPLY_TO_CLIENT="asker@1", TTL="3000")
        assert (answer.code, answer.remark) == (0, None)
        assert answer.ext is not None
        assert answer.ext["msgId"] == one.broker.identity.message_id(0)
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
        assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
        (push,) = requester.pushed
        header: PushReplyMessageHeader = push.header
        assert bytes(push.body) == b"pong"
        assert (header.topic, header.producerGroup, header.bornTimestamp) == (TOPIC, "R", START_MS)
        assert header.storeHost == one.address
        assert header.bornHost.count(":") == 1
        properties = decode(header.properties)
        assert (properties["CORRELATION_ID"], properties["TTL"]) == ("c-1", "3000")
        assert START_MS <= int(properties["PUSH_REPLY_TIME"]) == header.storeTimestamp
        assert await stored(one) == [b"pong"]
        (record,) = (await one.pull(TOPIC, 0, 0)).records
        assert b"PUSH_REPLY_TIME" not in record.properties


async def test_replies_need_not_be_stored(autojump_clock: trio.testing.MockClock) -> None:
    requester = Requester()
    async with memory_broker(store_reply_message_enable=False) as one, one.client(requester.handlers) as waiting:
        await waiting.heartbeat("asker@1", producer="Q")
        answer = await reply(one, REPLY_TO_CLIENT="asker@1")
        assert answer.code == 0
        assert answer.ext is not None
        assert (answer.ext["msgId"], answer.ext["queueOffset"]) == ("0", "0")
        assert await stored(one) == []


async def test_the_reason_a_reply_cannot_be_delivered(autojump_clock: trio.testing.MockClock) -> None:
    refusing, mute = Requester(ResponseCode.SYSTEM_ERROR), Requester(None)
    async with memory_broker() as one, one.client(refusing.handlers) as first, one.client(mute.handlers) as second:
        await first.heartbeat("refusing@1", producer="Q")
        await second.heartbeat("mute@1", producer="Q")
        answers = [
            await reply(one),
            await reply(one, REPLY_TO_CLIENT="nobody@1"),
            await reply(one, REPLY_TO_CLIENT="refusing@1"),
            await reply(one, REPLY_TO_CLIENT="mute@1"),
        ]
        assert [answer.code for answer in answers] == [1, 1, 1, 1]
        remarks = [answer.remark or "" for answer in answers]
        assert remarks[0] == "reply message properties[REPLY_TO_CLIENT] is null"
        assert remarks[1] == "push reply message fail, channel of <nobody@1> not found."
        assert "answered 1: as told" in remarks[2]
        assert "did not answer" in remarks[3]
        assert trio.current_time() >= 10
        assert len(await stored(one)) == 4, "stored all the same"


async def test_a_client_that_disconnects_meanwhile(autojump_clock: trio.testing.MockClock) -> None:
    mute = Requester(None)
    async with memory_broker() as one:
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await reply(one, REPLY_TO_CLIENT="mute@1"))

        async with trio.open_nursery() as nursery:
            async with one.client(mute.handlers) as waiting:
                await waiting.heartbeat("mute@1", producer="Q")
                nursery.start_soon(ask)
                await trio.sleep(1)
            with trio.fail_after(5):
                while not answers:
                    await trio.sleep(0.1)
        assert answers[0].code == 1


async def test_replies_that_cannot_be_delivered_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        header = SendMessageHeaderV2(queueId=0, topic="Unknown", properties="")
        answer = await one.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"x")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.ext or {})["MSG_REGION"] == "DefaultRegion"
