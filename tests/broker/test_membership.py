"""Heartbeats, unregistering, silence, lost connections, notices, locks, and the check of filters."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

from rocketlet.common.fastjson import loads
from rocketlet.remoting import in_turns
from rocketlet.remoting.command import Command
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.membership import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    LockBatchAnswerBody,
    LockBatchBody,
    NotifyConsumerIdsChangedHeader,
    SubscriptionData,
    UnregisterClientHeader,
)
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import Client, memory_broker, sql, tags


async def members(client: Client, group: str = "CG") -> list[str] | int:
    answer = await client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return json.loads(bytes(answer.body))["consumerIdList"] if answer.code == 0 else answer.code


class Notices:
    """A client's handler of 40."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.table = {40: Handler(self._heard, NotifyConsumerIdsChangedHeader)}

    def _heard(self, request: Request) -> None:
        self.groups.append(request.header.consumerGroup)

    def taken(self) -> list[str]:
        groups, self.groups = self.groups, []
        return groups


class Turns(trio.abc.Instrument):
    """How often the loop turned to the task that notifies."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("Clients.notify")


class TestHeartbeats:
    async def test_a_heartbeat_creates_the_group_and_its_retry_topic(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            assert await members(one) == ResponseCode.SYSTEM_ERROR
            answer = await one.heartbeat("c1", "CG", tags("T"), producer="PG")
            assert (answer.code, answer.version, answer.ext) == (0, 409, None)
            assert await members(one) == ["c1"]
            topic = one.broker.tables.topics.get("%RETRY%CG")
            assert topic is not None
            assert (topic.read, topic.perm) == (1, 6)
            assert one.broker.tables.groups.get("CG") is not None
            assert one.broker.clients.producers.client("c1") is not None

    async def test_ordinals_names_and_missing_sets_of_other_clients(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            body = (
                b'{"clientID":"cpp","consumerDataSet":[{"groupName":"CG","consumeType":1,"messageModel":1,'
                b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"TagA","subVersion":"12",'
                b'"codeSet":["2598919"],"tagsSet":["TagA"]}]}]}\n'
            )
            assert (await one.call(RequestCode.HEART_BEAT, None, body, version=333)).code == 0
            group = one.broker.clients.consumers.get("CG")
            assert group is not None
            assert (group.consume_type, group.message_model, group.consume_from_where) == (
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_FIRST_OFFSET",
            )
            assert group.subscriptions["T"].codes == {2598919}
            assert group.subscriptions["T"].version == 12

    async def test_members_are_known_even_without_auto_creation(self, autojump_clock: MockClock) -> None:
        async with memory_broker(auto_create_subscription_group=False) as one:
            await one.heartbeat("c1", "CG", tags("T"))
            assert await members(one) == ["c1"]
            assert one.broker.tables.topics.get("%RETRY%CG") is None

    async def test_an_invalid_heartbeat_is_an_error(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for body in (b"", b"{", b"[]", b'"x"'):
                assert (await one.call(RequestCode.HEART_BEAT, None, body)).code == ResponseCode.SYSTEM_ERROR

    async def test_members_with_different_subscriptions_are_logged(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with memory_broker() as one, one.client() as other:
            with caplog.at_level(logging.WARNING, "rocketlet.broker.consumer_groups"):
                await one.heartbeat("client-1", "CG", tags("T", "A"))
                await other.heartbeat("client-2", "CG", tags("T", "B", 2))
            [warning] = [
                record.message for record in caplog.records if record.name == "rocketlet.broker.consumer_groups"
            ]
            assert "CG" in warning
            assert "client-1" in warning
            assert "client-2" in warning


class TestNotices:
    async def test_members_of_a_large_group_are_told_in_turns(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
        async with memory_broker() as one, AsyncExitStack() as clients:
            heard = Notices()
            for number in range(20):
                client = await clients.enter_async_context(one.client(heard.table))
                await client.heartbeat(f"c{number}", "CG", tags("T"))
            await trio.sleep(1)
            heard.taken()
            turns = Turns()
            trio.lowlevel.add_instrument(turns)
            await one.heartbeat("new", "CG", tags("T"))
            await trio.sleep(1)
            trio.lowlevel.remove_instrument(turns)
            assert heard.taken() == ["CG"] * 20
            assert turns.count > 20

    async def test_a_storm_of_changes_is_few_notices(self, autojump_clock: MockClock) -> None:
        first = Notices()
        async with memory_broker() as one, one.client(first.table) as a:
            await a.heartbeat("a", "CG", tags("T"))
            await trio.sleep(1)
            first.taken()
            connection = await one.pool.connection(one.address)
            beats = [HeartbeatData("b", [], [ConsumerData("CG", subscriptionDataSet=[tags(t)])]) for t in ("T", "U")]
            for number in range(100):
                connection.send_oneway(Command(RequestCode.HEART_BEAT, body=beats[number % 2].to_json()))
            await trio.sleep(1)
            assert 0 < len(first.taken()) < 10

    async def test_all_members_are_notified_of_joins_and_leaves(self, autojump_clock: MockClock) -> None:
        first, second = Notices(), Notices()
        async with memory_broker() as one, one.client(first.table) as a:
            await a.heartbeat("a", "CG", tags("T"))
            await trio.sleep(0.1)
            assert first.taken() == ["CG"]
            async with one.client(second.table) as b:
                await b.heartbeat("b", "CG", tags("T"))
                await trio.sleep(0.1)
                assert (first.taken(), second.taken()) == (["CG"], ["CG"])
                await b.heartbeat("b", "CG", tags("T"))
                await b.heartbeat("b", "CG", tags("T", "X", 2))
                await trio.sleep(0.1)
                assert (first.taken(), second.taken()) == ([], [])
                await b.heartbeat("b", "CG", tags("T"), tags("U"))
                await trio.sleep(0.1)
                assert (first.taken(), second.taken()) == (["CG"], ["CG"])
            await trio.sleep(0.1)
            assert first.taken() == ["CG"]
            assert await members(one) == ["a"]

    async def test_members_are_notified_of_an_unregistration(self, autojump_clock: MockClock) -> None:
        notices = Notices()
        async with memory_broker() as one, one.client(notices.table) as a, one.client() as b:
            await a.heartbeat("a", "CG", tags("T"))
            await b.heartbeat("b", "CG", tags("T"), producer="PG")
            await trio.sleep(0.1)
            notices.taken()
            header = UnregisterClientHeader("b", "PG", "CG")
            assert (await b.call(RequestCode.UNREGISTER_CLIENT, header)).code == 0
            await trio.sleep(0.1)
            assert notices.taken() == ["CG"]
            assert await members(one) == ["a"]
            assert one.broker.clients.producers.members("PG") == []
            assert (await b.call(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("b", "", ""))).code == 0

    @pytest.mark.parametrize("off", ["broker", "group"])
    async def test_notices_can_be_disabled(self, autojump_clock: MockClock, off: str) -> None:
        notices = Notices()
        async with memory_broker(notify_consumer_ids_changed_enable=off != "broker") as one:
            if off == "group":
                group = SubscriptionGroupConfig(groupName="CG", notifyConsumerIdsChangedEnable=False)
                await one.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.to_json())
            async with one.client(notices.table) as a:
                await a.heartbeat("a", "CG", tags("T"))
                await trio.sleep(0.1)
                assert notices.groups == []

    async def test_a_client_that_reconnected_is_listed_once(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one, one.client() as again:
            await one.heartbeat("c", "CG", tags("T"))
            await again.heartbeat("c", "CG", tags("T"))
            assert await members(one) == ["c"]


class TestSilence:
    async def test_two_minutes_without_a_heartbeat_end_a_membership(self, autojump_clock: MockClock) -> None:
        async with memory_broker(server_channel_max_idle_time_seconds=3600) as one, one.client() as mute:
            await mute.heartbeat("mute", "CG", tags("T"), producer="PG")
            await trio.sleep(110)
            await one.heartbeat("alive", "CG", tags("T"))
            await trio.sleep(25)
            assert await members(one) == ["alive"]
            assert one.broker.clients.producers.members("PG") == []

    async def test_heartbeats_keep_a_membership(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for _ in range(10):
                await one.heartbeat("c", "CG", tags("T"))
                await trio.sleep(30)
            assert await members(one) == ["c"]


async def test_a_lost_connection_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        async with one.client() as client:
            await client.heartbeat("c", "CG", tags("T"), sql("U", "a > 1"), producer="PG")
            known = one.broker.tables.filters.get("U", "CG")
            assert known is not None
            assert not known.dead
        await trio.sleep(0.1)
        assert one.broker.clients.consumers.statistics().members == 0
        assert one.broker.clients.producers.statistics().members == 0
        assert known.dead


class TestFilters:
    async def check(self, client: Client, subscription: SubscriptionData) -> Command:
        body = CheckClientBody("c", "CG", subscription)
        return await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body.to_json())

    async def test_a_consumers_filter_is_checked_before_it_starts(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            assert (await self.check(one, tags("T", "A"))).code == 0
            assert (await self.check(one, sql("T", "a > 1 AND b IS NOT NULL"))).code == 0
            assert (await self.check(one, sql("T", "a >"))).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            unknown = SubscriptionData("T", "x", expressionType="MAGIC")
            assert (await self.check(one, unknown)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"enablePropertyFilter=false")
            assert (await self.check(one, sql("T", "a > 1"))).code == ResponseCode.SYSTEM_ERROR
            assert (await self.check(one, tags("T", "A"))).code == 0

    async def test_what_a_heartbeat_brings_too_much_of_is_compiled_later(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            many = [sql(f"T{n}", f"a{n} = 1 OR " * 600 + "b = 2") for n in range(20)]
            await one.heartbeat("c1", "CG", *many)
            filters = one.broker.tables.filters
            assert 0 < len(filters) < 20
            await trio.testing.wait_all_tasks_blocked()
            assert len(filters) == 20
            await one.heartbeat("c1", "CG", *[sql(f"T{n}", f"a{n} = 2 OR " * 600 + "b = 2", 2) for n in range(20)])
            await one.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "CG"})
            await trio.testing.wait_all_tasks_blocked()
            assert all(known.dead for known in filters.of_group("CG"))

    async def test_a_heartbeat_of_too_many_objects_is_refused(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%b]}]}'
            answer = await one.call(RequestCode.HEART_BEAT, None, body % b",".join([b"{}"] * 10_000))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "objects" in (answer.remark or "")
            assert (await one.call(RequestCode.HEART_BEAT, None, body % b",".join([b"{}"] * 9_999))).code == 0


class TestLocks:
    QUEUES = tuple(WireQueue("broker-a", n, "T") for n in range(3))

    async def lock(self, client: Client, client_id: str, queues: Sequence[WireQueue]) -> tuple[WireQueue, ...]:
        body = LockBatchBody(client_id, "CG", list(queues)).to_json()
        answer = await client.call(RequestCode.LOCK_BATCH_MQ, None, body)
        assert answer.code == 0
        return tuple(LockBatchAnswerBody.from_json(answer.body).lockOKMQSet)

    async def test_each_queue_has_one_holder(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            assert await self.lock(one, "a", self.QUEUES[:2]) == self.QUEUES[:2]
            assert await self.lock(one, "b", self.QUEUES) == self.QUEUES[2:]
            body = LockBatchBody("a", "CG", list(self.QUEUES)).to_json()
            assert (await one.call(RequestCode.UNLOCK_BATCH_MQ, None, body)).code == 0
            assert await self.lock(one, "b", self.QUEUES) == self.QUEUES
            await trio.sleep(61)
            assert await self.lock(one, "a", self.QUEUES) == self.QUEUES

    async def test_the_answer_always_has_a_list(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await self.lock(one, "a", self.QUEUES)
            body = LockBatchBody("b", "CG", list(self.QUEUES)).to_json()
            answer = await one.call(RequestCode.LOCK_BATCH_MQ, None, body)
            assert loads(bytes(answer.body)) == {"lockOKMQSet": []}
