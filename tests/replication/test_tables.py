"""A slave's tables follow its master's: at once if both are ours, and the newer value wins."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from rocketlet.remoting import in_turns
from rocketlet.remoting.protocol.configuration import DeleteSubscriptionGroupHeader, SubscriptionGroupConfig
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import tags
from tests.support.pair import Member, pair

SOON = 1.0


async def commit(member: Member, offset: int, *, group: str = "CG", queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetHeader(queue_id, offset, "T", group)
    assert (await member.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def committed(member: Member, group: str = "CG", queue_id: int = 0) -> int | None:
    answer = await member.call(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(queue_id, "T", group))
    return int((answer.ext or {})["offset"]) if answer.code == 0 else None


async def test_topics_groups_and_offsets_follow_within_a_second(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        master, slave = cluster.master, cluster.slave()
        for _ in range(8):
            await master.send("T", b"x")
        await master.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(groupName="CG").to_json()
        )
        await cluster.caught_up()
        await trio.sleep(SOON)
        assert len((await slave.pull("T", 0, 0)).records) == 8
        for offset in (5, 7, 2):  # a reset backwards too
            await commit(master, offset)
            await trio.sleep(SOON)
            assert await committed(slave) == offset
        assert slave.broker is not None
        assert master.broker is not None
        assert slave.broker.tables.topics.version == master.broker.tables.topics.version
        assert slave.broker.tables.topics.to_body() == master.broker.tables.topics.to_body()
        assert slave.broker.tables.groups.to_body() == master.broker.tables.groups.to_body()


async def test_offsets_committed_at_the_slave_during_an_outage_count(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        for _ in range(8):
            await cluster.master.send("T", b"x")
        await cluster.caught_up()
        await commit(cluster.master, 3)
        await trio.sleep(SOON)
        await cluster.kill("master")
        await commit(cluster.slave(), 6)
        await commit(cluster.slave(), 4, queue_id=1)
        await cluster.start("master")
        await trio.sleep(20)
        for member in (cluster.slave(), cluster.master):
            assert await committed(member) == 6, member.name
            assert await committed(member, queue_id=1) == 4
        await commit(cluster.master, 1)
        await trio.sleep(SOON)
        assert await committed(cluster.slave()) == 1


async def test_deletions_are_replicated(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        master, slave = cluster.master, cluster.slave()
        for number in range(4):
            await master.send("T", b"old %d" % number)
        await master.heartbeat("c", "CG", tags("T"))
        await commit(master, 2)
        await cluster.caught_up()
        await trio.sleep(SOON)
        assert slave.store.queue("T", 0) is not None
        assert (await master.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        await trio.sleep(SOON)
        assert slave.store.queue("T", 0) is None
        assert slave.broker is not None
        assert slave.broker.tables.topics.get("T") is None
        assert slave.broker.tables.offsets.of("CG", "T") == {}
        await master.send("T", b"new")
        await cluster.caught_up()
        await trio.sleep(SOON)
        assert [record.body for record in (await slave.pull("T", 0, 0)).records] == [b"new"]
        header = DeleteSubscriptionGroupHeader("CG", True)
        assert (await master.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, to_ext(header))).code == 0
        await trio.sleep(SOON)
        assert slave.broker.tables.groups.get("CG") is None


async def test_a_slave_answers_others_while_it_deletes_many_offsets(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
    monkeypatch.setattr(in_turns, "_BETWEEN_LOOKS", 1)
    counts: set[int] = set()
    async with pair() as cluster:
        await cluster.master.send("T", b"x")
        await cluster.caught_up()
        for queue_id in range(100):
            await commit(cluster.master, 1, queue_id=queue_id)
        await trio.sleep(SOON)
        assert cluster.slave().broker is not None
        offsets = cluster.slave().broker.tables.offsets
        assert len(offsets) == 100

        class Count(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                counts.add(len(offsets))

        count = Count()
        trio.lowlevel.add_instrument(count)
        header = DeleteSubscriptionGroupHeader("CG", True)
        assert (await cluster.master.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, to_ext(header))).code == 0
        await trio.sleep(SOON)
        trio.lowlevel.remove_instrument(count)
    assert counts >= set(range(101))


async def test_deletions_reach_a_slave_that_was_down_despite_a_master_restart(
    autojump_clock: MockClock,
) -> None:
    async with pair() as cluster:
        await cluster.master.send("T", b"old")
        await cluster.master.send("U", b"kept")
        await cluster.caught_up()
        await trio.sleep(SOON)
        await cluster.kill("slave-1")
        await cluster.master.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        await cluster.kill("master")
        await cluster.start("master")
        slave = await cluster.start("slave-1")
        await trio.sleep(10)
        assert slave.broker is not None
        assert slave.broker.tables.topics.get("T") is None
        assert slave.store.queue("T", 0) is None
        assert slave.store.queue_end("U", 0) == 1


async def test_a_master_that_lost_its_disk_deletes_nothing_at_slaves(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await cluster.master.send("T", b"precious")
        await cluster.caught_up()
        await trio.sleep(SOON)
        slave = cluster.slave()
        log = slave.log()
        await cluster.kill("master")
        cluster.master.disk = type(cluster.master.disk)()
        await cluster.start("master")
        for _ in range(5):
            await cluster.master.send("Other", b"of another life" * 20)
        await trio.sleep(60)
        assert slave.log() == log
        assert slave.broker is not None
        assert slave.broker.tables.topics.get("T") is not None
        assert slave.broker.tables.topics.get("Other") is None
        assert slave.broker.duties.follower is not None
        assert "rocketlet store reseed" in slave.broker.duties.follower.trouble
        assert (await slave.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == ResponseCode.SYSTEM_ERROR
