"""Pulls: the table of results, every refusal, and pulls that wait."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketlet.remoting.protocol.configuration import CreateTopicHeader, SubscriptionGroupConfig
from rocketlet.remoting.protocol.pulling import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import SEE_FAQ, ResponseCode
from tests.support.memory_broker import Client, Pulled, RunningBroker, memory_broker, sql, tags

HELD = SUBSCRIPTION | SUSPEND


async def topic_with(one: RunningBroker, count: int, topic: str = "T") -> None:
    header = CreateTopicHeader(topic, readQueueNums=2, writeQueueNums=2)
    await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    for n in range(count):
        await one.send(topic, b"%d" % n, TAGS="AB"[n % 2], a=str(n))


class Held:
    """A pull in flight, and when it was answered."""

    def __init__(self, nursery: trio.Nursery, client: Client, *args: Any, **fields: Any) -> None:
        self.answer: Pulled | None = None
        self.time = 0.0
        nursery.start_soon(self._pull, client, args, fields)

    async def _pull(self, client: Client, args: Any, fields: Any) -> None:
        self.answer = await client.pull(*args, **({"sysFlag": HELD, "suspendTimeoutMillis": 15_000} | fields))
        self.time = trio.current_time()


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (0, 0, "FOUND", 5),
        (3, 0, "FOUND", 5),
        (5, 19, "OFFSET_OVERFLOW_ONE", 5),
        (6, 21, "OFFSET_OVERFLOW_BADLY", 5),
        (-1, 21, "OFFSET_TOO_SMALL", 0),
    ],
)
async def test_the_result_table(
    autojump_clock: MockClock, offset: int, code: int, status: str, next_offset: int
) -> None:
    async with memory_broker() as one:
        await topic_with(one, 5)
        answer = await one.pull("T", 0, offset)
        assert (answer.code, answer.remark) == (code, status)
        assert answer.ext == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": "5",
        }


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (1, 21)])
async def test_an_empty_queue(autojump_clock: MockClock, offset: int, code: int) -> None:
    async with memory_broker() as one:
        await topic_with(one, 0)
        answer = await one.pull("T", 1, offset)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (code, "0")


async def test_records_are_sent_as_stored_up_to_the_requested_count(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await topic_with(one, 50)
        answer = await one.pull("T", 0, 10, maxMsgNums=3)
        assert [record.body for record in answer.records] == [b"10", b"11", b"12"]
        assert answer.ext["nextBeginOffset"] == "13"
        assert len((await one.pull("T", 0, 0, maxMsgNums=1000)).records) == 32
        flow = one.broker.statistics.pull_flow("CG", "T", 0)
        assert flow.messages == 35


async def test_a_tag_filter_skips_other_messages_and_advances_the_offset(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await topic_with(one, 6)
        answer = await one.pull("T", 0, 0, subscription="B")
        assert [record.body for record in answer.records] == [b"1", b"3", b"5"]
        nothing = await one.pull("T", 0, 0, subscription="C || D")
        assert (nothing.code, nothing.remark) == (20, "NO_MATCHED_MESSAGE")
        assert nothing.ext["nextBeginOffset"] == "6"


async def test_an_sql_expression(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await topic_with(one, 6)
        answer = await one.pull("T", 0, 0, subscription="a BETWEEN 2 AND 3", expressionType="SQL92")
        assert [record.body for record in answer.records] == [b"2", b"3"]
        bad = await one.pull("T", 0, 0, subscription="a >", expressionType="SQL92")
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"enablePropertyFilter=false")
        off = await one.pull("T", 0, 0, subscription="a > 1", expressionType="SQL92")
        assert off.code == ResponseCode.SYSTEM_ERROR


async def test_code_361_is_a_pull(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await topic_with(one, 1)
        header = PullMessageHeader(0, 0, 32, "T", "CG", 22, subscription="*")
        assert (await one.call(361, header)).code == 0


class TestRefusals:
    async def test_refusals_have_a_fixed_order(self, autojump_clock: MockClock) -> None:
        async with memory_broker(auto_create_subscription_group=False) as one:
            assert (await one.pull("T", 0, 0)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            group = SubscriptionGroupConfig(groupName="CG", consumeEnable=False)
            await one.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.to_json())
            assert (await one.pull("T", 0, 0)).code == ResponseCode.NO_PERMISSION
            group.consumeEnable = True
            await one.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.to_json())
            answer = await one.pull("T", 0, 0)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert answer.remark == f"topic[T] not exist, apply first please! {SEE_FAQ}"
            await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader("T", perm=2))
            assert (await one.pull("T", 0, 0)).code == ResponseCode.NO_PERMISSION
            await topic_with(one, 0)
            for queue_id in (-1, 2):
                assert (await one.pull("T", queue_id, 0)).code == ResponseCode.SYSTEM_ERROR
            assert (await one.pull("T", 0, 0, subscription="||")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=2")
            assert (await one.pull("T", 0, 0)).code == ResponseCode.NO_PERMISSION

    async def test_refusals_by_the_groups_subscription(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 4)
            plain = {"sysFlag": 0, "subscription": None}
            assert (await one.pull("T", 0, 0, **plain)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            await one.heartbeat("c", "CG", tags("U"))
            assert (await one.pull("T", 0, 0, **plain)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            await one.heartbeat("c", "CG", tags("T", "A", 5))
            assert (await one.pull("T", 0, 0, subVersion=6, **plain)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
            found = await one.pull("T", 0, 0, subVersion=5, **plain)
            assert [record.body for record in found.records] == [b"0", b"2"]

    async def test_refusals_by_the_groups_sql_filter(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 4)
            plain = {"sysFlag": 0, "subscription": None, "expressionType": "SQL92"}
            await one.heartbeat("c", "CG", sql("T", "a = 3", 5))
            found = await one.pull("T", 0, 0, subVersion=5, **plain)
            assert [record.body for record in found.records] == [b"3"]
            await one.heartbeat("c", "CG", sql("T", "a >", 6))
            missing = await one.pull("T", 0, 0, subVersion=6, **plain)
            assert missing.code == ResponseCode.FILTER_DATA_NOT_EXIST

    async def test_broadcasting_is_refused_where_the_group_forbids_it(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 1)
            group = SubscriptionGroupConfig(groupName="CG", consumeBroadcastEnable=False)
            await one.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.to_json())
            await one.heartbeat("c", "CG", tags("T"), model="BROADCASTING")
            assert (await one.pull("T", 0, 0, sysFlag=0)).code == ResponseCode.NO_PERMISSION

    async def test_missing_numbers_are_named(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            answer = await one.call(RequestCode.PULL_MESSAGE, {"topic": "T", "queueId": "x"})
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "queue" in (answer.remark or "")


class TestCommits:
    async def test_the_commit_counts_whatever_the_pull_finds(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 1)
            flags = SUBSCRIPTION | COMMIT_OFFSET
            for offset, committed in ((0, 7), (9, 8)):
                await one.pull("T", 0, offset, sysFlag=flags, commitOffset=committed)
                assert one.broker.tables.offsets.get("CG", "T", 0) == committed

    async def test_a_parked_pull_commits_once(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 1)
            Held(nursery, one, "T", 0, 1, sysFlag=HELD | COMMIT_OFFSET, commitOffset=1)
            await trio.sleep(1)
            assert one.broker.tables.offsets.get("CG", "T", 0) == 1
            one.broker.tables.offsets.commit("CG", "T", 0, 5)
            await trio.sleep(20)
            assert one.broker.tables.offsets.get("CG", "T", 0) == 5


class TestWaiting:
    async def test_a_message_ends_the_wait_in_the_turn_of_its_send(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 2)
            held, other = Held(nursery, one, "T", 0, 2), Held(nursery, one, "T", 1, 0)
            await trio.sleep(3)
            await one.send("T", b"news")
            await trio.sleep(0.001)
            assert held.answer is not None
            assert [record.body for record in held.answer.records] == [b"news"]
            assert other.answer is None

    async def test_the_timeout_answers_19(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 2)
            start = trio.current_time()
            held, empty = Held(nursery, one, "T", 0, 2), Held(nursery, one, "T", 1, 0)
            await trio.sleep(16)
            for pull in (held, empty):
                assert pull.answer is not None
                assert pull.answer.code == ResponseCode.PULL_NOT_FOUND
                assert pull.time - start == pytest.approx(15, abs=0.1)

    async def test_without_long_polling_a_pull_waits_a_second(self, autojump_clock: MockClock) -> None:
        async with memory_broker(long_polling_enable=False) as one, trio.open_nursery() as nursery:
            await topic_with(one, 0)
            start = trio.current_time()
            held = Held(nursery, one, "T", 0, 0)
            await trio.sleep(2)
            assert held.time - start == pytest.approx(1, abs=0.1)

    async def test_a_pull_that_must_not_wait_is_answered_at_once(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 0)
            start = trio.current_time()
            answer = await one.pull("T", 0, 0, suspendTimeoutMillis=15_000)
            assert (answer.code, trio.current_time() - start) == (19, pytest.approx(0, abs=0.1))

    async def test_messages_the_filter_rejects_do_not_end_the_wait(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 0)
            held = Held(nursery, one, "T", 0, 0, subscription="B")
            waiting = Held(nursery, one, "T", 0, 0, subscription="C")
            await trio.sleep(0.1)
            for n in range(900):
                await one.send("T", b"%d" % n, TAGS="A")
            assert held.answer is None
            await one.send("T", b"mine", TAGS="B")
            await trio.sleep(0.01)
            assert held.answer is not None
            assert [record.body for record in held.answer.records] == [b"mine"]
            assert held.answer.ext["nextBeginOffset"] == "901"
            await trio.sleep(16)
            assert waiting.answer is not None
            assert waiting.answer.code in (19, 20)
            assert waiting.answer.ext["nextBeginOffset"] == "901"

    async def test_a_delayed_message_ends_the_wait_when_delivered(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 0)
            start = trio.current_time()
            held = Held(nursery, one, "T", 0, 0)
            await one.send("T", b"later", DELAY="2")
            await trio.sleep(6)
            assert held.time - start == pytest.approx(5, abs=0.2)

    async def test_a_topic_deleted_meanwhile_ends_the_wait(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 1)
            held = Held(nursery, one, "T", 0, 1)
            await trio.sleep(1)
            await one.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            await trio.sleep(15)
            assert held.answer is not None
            assert held.answer.code == ResponseCode.TOPIC_NOT_EXIST

    async def test_a_lost_connections_pull_is_forgotten(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic_with(one, 0)
            async with one.client() as client, trio.open_nursery() as nursery:
                Held(nursery, client, "T", 0, 0)
                await trio.sleep(1)
                assert one.broker.parts.long_poll.statistics().parked == 1
                nursery.cancel_scope.cancel()
            await trio.sleep(0.1)
            assert one.broker.parts.long_poll.statistics().parked == 0
            assert (await one.send("T")).code == 0

    async def test_a_stopping_broker_answers_the_pull(self, autojump_clock: MockClock) -> None:
        answers = []
        async with trio.open_nursery() as nursery, memory_broker() as one:
            await topic_with(one, 0)
            held = Held(nursery, one, "T", 0, 0)
            await trio.sleep(1)
            await one.broker._withdraw()
            await trio.sleep(0.1)
            answers.append(held.answer)
        assert answers[0] is not None
        assert answers[0].code == 19

    async def test_many_pulls_wait_at_once(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, trio.open_nursery() as nursery:
            await topic_with(one, 0)
            held = [Held(nursery, one, "T", 0, 0, consumerGroup=f"CG{n}") for n in range(300)]
            await trio.sleep(1)
            await one.send("T", b"all")
            await trio.sleep(0.1)
            assert all(one.answer is not None and one.answer.code == 0 for one in held)


async def test_old_messages_are_read_from_disk_off_the_loop(autojump_clock: MockClock) -> None:
    async with memory_broker(access_message_in_memory_max_ratio=0) as one:
        await topic_with(one, 3)
        one.disk.cold = True
        answer = await one.pull("T", 0, 0)
        assert [record.body for record in answer.records] == [b"0", b"1", b"2"]


async def test_a_slow_group_is_redirected_to_a_slave_if_allowed(autojump_clock: MockClock) -> None:
    async with memory_broker(slave_read_enable=True, access_message_in_memory_max_ratio=0) as one:
        await topic_with(one, 20)
        assert (await one.pull("T", 0, 0)).ext["suggestWhichBrokerId"] == "1"
        assert (await one.pull("T", 0, 19)).ext["suggestWhichBrokerId"] == "0"
