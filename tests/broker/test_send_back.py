"""Messages sent back: the rule for retries, the resulting records, and refusals."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import trio

from rocketlet.broker.handlers.send_back import judge
from rocketlet.broker.put_again import put_again
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Record, decode, encode
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.config import FlushDiskType, StoreConfig
from rocketlet.store.layout.queue_rules import parse_delay_levels
from rocketlet.store.message import Put
from tests.support.memory_broker import RunningBroker, memory_broker

LEVELS = parse_delay_levels(StoreConfig().message_delay_level)
RETRY, DEAD = "%RETRY%CG", "%DLQ%CG"


async def send_back(one: RunningBroker, offset: int, level: int = 0, **fields: object) -> int:
    header = ConsumerSendMsgBackHeader(offset=offset, group="CG", delayLevel=level, originTopic="T", **fields)  # type: ignore[arg-type]
    return (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code


async def stored(one: RunningBroker, topic: str) -> list[Record]:
    return (await one.pull(topic, 0, 0)).records


@pytest.mark.parametrize(
    ("tries", "most", "wanted", "level"),
    [(0, 16, 0, 3), (15, 16, 0, 18), (16, 16, 0, 0), (0, 0, 0, 0), (0, 16, -1, 0), (5, 16, 2, 2), (20, 30, 0, 23)],
)
def test_the_delay_level_rule(tries: int, most: int, wanted: int, level: int) -> None:
    verdict = judge(tries, most, wanted)
    assert verdict.level == level
    assert verdict.dead == (level == 0)


async def test_sixteen_retries_and_then_a_dead_letter(autojump_clock: trio.testing.MockClock) -> None:
    """Nearly five hours of retries, each at its time, in virtual time."""
    async with memory_broker() as one:
        await one.send("T", b"poison", TAGS="A", KEYS="k")
        message = (await stored(one, "T"))[0]
        origin = one.broker.identity.message_id(message.log_offset)
        for tries in range(16):
            assert message.reconsume_times == tries
            sent = one.broker.parts.clock()
            assert await send_back(one, message.log_offset) == 0
            assert await stored(one, DEAD) == []
            answer = await one.pull(RETRY, 0, tries, sysFlag=6, suspendTimeoutMillis=1000)
            assert answer.records == []
            await trio.sleep(LEVELS[2 + tries] / 1000 - 1.5)
            assert (await one.pull(RETRY, 0, tries)).records == []
            answer = await one.pull(RETRY, 0, tries, sysFlag=6, suspendTimeoutMillis=2000)
            message = answer.records[0]
            assert 0 <= message.store_timestamp - sent - LEVELS[2 + tries] <= 2
            properties = decode_bytes(message.properties)
            assert properties["RETRY_TOPIC"] == "T"
            assert properties["ORIGIN_MESSAGE_ID"] == origin
            assert (properties["TAGS"], properties["KEYS"]) == ("A", "k")
        assert await send_back(one, message.log_offset) == 0
        (dead,) = await stored(one, DEAD)
        assert (dead.body, dead.reconsume_times) == (b"poison", 17)
        properties = decode_bytes(dead.properties)
        assert (properties["DELAY"], properties["ORIGIN_MESSAGE_ID"]) == ("0", origin)
        assert len((await one.pull(RETRY, 0, 0)).records) == 16


async def test_maximum_retries_of_group_and_client(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        message = (await stored(one, "T"))[0]
        one.broker.tables.groups.update(replace_group(one, retryMaxTimes=0))
        assert await send_back(one, message.log_offset) == 0
        assert len(await stored(one, DEAD)) == 1
        assert await send_back(one, message.log_offset, maxReconsumeTimes=1) == 0
        assert len(await stored(one, DEAD)) == 1, "the client's maximum wins over the group's"
        await trio.sleep(11)
        again = (await stored(one, RETRY))[0]
        assert await send_back(one, again.log_offset, maxReconsumeTimes=1) == 0
        assert len(await stored(one, DEAD)) == 2
        assert await send_back(one, message.log_offset, -1, maxReconsumeTimes=9) == 0
        assert len(await stored(one, DEAD)) == 3


def replace_group(one: RunningBroker, **changes: object) -> SubscriptionGroupConfig:
    group = one.broker.tables.groups.find("CG")
    assert group is not None
    return msgspec.structs.replace(group, **changes)


async def test_invalid_send_backs_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(auto_create_subscription_group=False) as one:
        await one.send("T")
        assert await send_back(one, 0) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with memory_broker() as one:
        await one.send("T")
        assert await send_back(one, 99_999) == ResponseCode.SYSTEM_ERROR
        assert await send_back(one, 1) == ResponseCode.SYSTEM_ERROR
        one.broker.tables.groups.update(replace_group(one, retryQueueNums=0))
        assert await send_back(one, 99_999) == ResponseCode.SUCCESS, "nothing is done"
    async with memory_broker(broker_permission=4) as one:
        assert await send_back(one, 0) == ResponseCode.NO_PERMISSION


async def test_with_sync_flush_the_answer_waits_for_the_disk(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as one:
        await one.send("T")
        message = (await stored(one, "T"))[0]
        assert await send_back(one, message.log_offset) == 0
        assert one.broker.store.flushed.value == one.broker.store.log.end


async def test_a_send_tried_too_often_becomes_a_dead_letter_after_its_delay(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An orderly consumer gives up a message this way."""
    async with memory_broker() as one:
        fields = {"reconsumeTimes": 1, "maxReconsumeTimes": 1}
        await one.send(RETRY, b"bad", fields=fields, DELAY="4", RETRY_TOPIC="T")
        assert await stored(one, DEAD) == []
        await trio.sleep(LEVELS[3] / 1000 + 0.01)
        (dead,) = await stored(one, DEAD)
        assert (dead.body, dead.reconsume_times) == (b"bad", 1)
        await one.send(RETRY, b"again", fields={"reconsumeTimes": 1, "maxReconsumeTimes": 2}, RETRY_TOPIC="T")
        assert [found.body for found in await stored(one, RETRY)] == [b"again"]


def test_records_equal_a_java_brokers(vectors: Path) -> None:
    """Retries and the dead letter of the recorded store, rebuilt from the messages sent back."""

    async def check() -> None:
        case = vectors / "stores" / "mixed"
        expected = json.loads((case / "expected.json").read_text())["records"]
        with tarfile.open(case / "store.tar.gz") as archive:
            member = archive.extractfile("store/commitlog/00000000000000000000")
            assert member is not None
            log = member.read()
        recorded = [decode(log, record["phy"]) for record in expected]
        back = [
            found for found in recorded if found.topic in (SCHEDULE_TOPIC, "%DLQ%CG_mixed") and found.reconsume_times
        ]
        async with memory_broker() as one:
            for theirs in back:
                original = next(
                    found for found in recorded if found.body == theirs.body
                    and found.topic in ("TopicR", "%RETRY%CG_mixed")
                    and found.reconsume_times == theirs.reconsume_times - 1
                )  # fmt: skip
                ours = one.broker.store
                at = ours.put(_put_of(original)).log_offset
                ours.settle()
                # The id of the first delivery refers to a record at another offset in our log.
                dead = theirs.topic.startswith("%DLQ%")
                header = ConsumerSendMsgBackHeader(
                    offset=at, group="CG_mixed", delayLevel=-1 if dead else 1, originTopic="TopicR"
                )
                assert (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
                raw = ours.record_at(ours.dispatched.value - theirs.size)
                assert raw is not None
                found = decode(raw)
                theirs_id = decode_bytes(theirs.properties)["ORIGIN_MESSAGE_ID"].encode()
                ours_id = decode_bytes(found.properties)["ORIGIN_MESSAGE_ID"].encode()
                placed = replace(
                    found, queue_offset=theirs.queue_offset, log_offset=theirs.log_offset,
                    store_timestamp=theirs.store_timestamp, properties=found.properties.replace(ours_id, theirs_id),
                )  # fmt: skip
                assert encode(placed) == encode(theirs)
        assert len(back) == 4

    trio.run(check, clock=trio.testing.MockClock(autojump_threshold=0))


def _put_of(record: Record) -> Put:
    message = put_again(record, record.topic, record.queue_id)
    message.reconsume_times = record.reconsume_times
    return message
