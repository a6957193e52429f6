"""Switching masters and slaves by hand."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.replication import (
    DemoteHeader,
    HARuntimeInfo,
    PromoteAnswerHeader,
    PromoteHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.pair import Member, Pair, pair


async def promote(member: Member, **header: bool) -> PromoteAnswerHeader:
    answer = await member.call(RequestCode.PROMOTE_SLAVE, PromoteHeader(**header))
    assert answer.code == 0, answer.remark
    return from_ext(PromoteAnswerHeader, answer.ext)


async def status(member: Member) -> HARuntimeInfo:
    return HARuntimeInfo.from_json((await member.call(RequestCode.GET_BROKER_HA_STATUS)).body)


async def fill(cluster: Pair, member: Member, count: int) -> list[bytes]:
    bodies = [b"%s %d" % (member.name.encode(), number) for number in range(count)]
    for body in bodies:
        assert (await member.send("T", body)).code == 0
    return bodies


async def bodies_at(member: Member) -> list[bytes]:
    found: list[bytes] = []
    while records := (await member.pull("T", 0, len(found))).records:
        found += [record.body for record in records]
    return found


async def test_a_planned_switch_loses_nothing_and_the_old_master_follows(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        wanted = await fill(cluster, cluster.master, 40)
        await trio.sleep(1)
        slave = cluster.slave()
        answer = await promote(slave)
        assert answer.logEnd == answer.masterLogEnd
        assert (await cluster.master.send("T", b"too late")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        wanted += await fill(cluster, slave, 40)
        await trio.sleep(5)
        assert await bodies_at(slave) == wanted == await bodies_at(cluster.master)
        cluster.same_log()
        assert slave.broker is not None
        assert (slave.broker.identity.broker_id, slave.broker.identity.slave) == (0, False)
        assert cluster.master.broker is not None
        assert (cluster.master.broker.identity.broker_id, cluster.master.broker.identity.slave) == (1, True)
        # The decision survives restarts of both.
        for name in ("master", "slave-1"):
            await cluster.stop(name)
        for name in ("slave-1", "master"):
            await cluster.start(name)
        wanted += await fill(cluster, slave, 5)
        await trio.sleep(5)
        assert await bodies_at(cluster.master) == wanted
        # And back.
        await promote(cluster.master)
        wanted += await fill(cluster, cluster.master, 5)
        await trio.sleep(5)
        assert await bodies_at(slave) == wanted == await bodies_at(cluster.master)


async def test_delays_and_transactions_continue_at_the_new_master(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await cluster.master.send("T", b"first")
        await cluster.master.send("T", b"later", DELAY="4")  # 30 s
        await trio.sleep(1)
        await promote(cluster.slave())
        assert await bodies_at(cluster.slave()) == [b"first"]
        await trio.sleep(40)
        assert await bodies_at(cluster.slave()) == [b"first", b"later"]
        await trio.sleep(5)
        assert await bodies_at(cluster.master) == [b"first", b"later"]


async def test_a_switch_that_cannot_be_planned_changes_nothing(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await fill(cluster, cluster.master, 3)
        await trio.sleep(1)
        await cluster.kill("master")
        answer = await cluster.slave().call(RequestCode.PROMOTE_SLAVE, PromoteHeader())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "--force" in (answer.remark or "")
        await cluster.start("master")
        await trio.sleep(10)
        assert (await cluster.master.send("T", b"go on")).code == 0


async def test_a_forced_switch_replaces_a_lost_master_and_reports_possible_loss(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        wanted = await fill(cluster, cluster.master, 10)
        await trio.sleep(1)
        end = cluster.master.store.log.end
        await cluster.kill("master")
        answer = await promote(cluster.slave(), force=True)
        assert (answer.logEnd, answer.masterLogEnd) == (end, end)
        wanted += await fill(cluster, cluster.slave(), 10)
        assert await bodies_at(cluster.slave()) == wanted


async def test_a_master_resumes_if_the_slave_dies_during_a_switch(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await fill(cluster, cluster.master, 3)
        await trio.sleep(1)
        answer = await cluster.master.call(RequestCode.HAND_OVER, {"step": "stop", "brokerId": "1"})
        assert answer.code == 0
        assert (await cluster.master.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(20)
        assert (await cluster.master.send("T")).code == 0


async def test_a_demoted_master_refuses_writes_and_follows_its_new_master(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await fill(cluster, cluster.master, 3)
        await trio.sleep(1)
        header = DemoteHeader(2, cluster.slave().ha_address)
        assert (await cluster.master.call(RequestCode.DEMOTE_MASTER, header)).code == 0
        assert (await cluster.master.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await promote(cluster.slave(), force=True)
        await fill(cluster, cluster.slave(), 3)
        await trio.sleep(10)
        cluster.same_log()


async def test_ha_status_shows_who_follows_whom(autojump_clock: MockClock) -> None:
    async with pair(slaves=2) as cluster:
        await fill(cluster, cluster.master, 3)
        await trio.sleep(2)
        found = await status(cluster.master)
        assert (found.master, found.inSyncSlaveNums) == (True, 2)
        assert {one.slaveAckOffset for one in found.haConnectionInfo} == {cluster.master.store.log.end}
        found = await status(cluster.slave(2))
        assert not found.master
        assert found.haClientRuntimeInfo.isActivated
        assert found.haClientRuntimeInfo.masterAddr == cluster.master.ha_address
        assert found.haClientRuntimeInfo.maxOffset == cluster.master.store.log.end


async def test_a_topic_known_only_from_the_log_exists_at_the_new_master(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        await fill(cluster, cluster.master, 3)
        await cluster.caught_up()
        slave = cluster.slave()
        assert slave.broker is not None
        slave.broker.tables.topics.delete("T")  # as if the master had gone before replicating it
        await cluster.kill("master")
        await promote(slave, force=True)
        assert len(await bodies_at(slave)) == 3


async def test_a_sync_master_is_replaced_by_a_sync_master(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as cluster:
        await trio.sleep(3)
        await fill(cluster, cluster.master, 3)
        await promote(cluster.slave())
        assert cluster.slave().store.config.broker_role.value == "SYNC_MASTER"
        await trio.sleep(5)
        await fill(cluster, cluster.slave(), 3)
        cluster.same_log()


async def test_another_slave_follows_the_new_master_soon(autojump_clock: MockClock) -> None:
    async with pair(slaves=2) as cluster:
        await fill(cluster, cluster.master, 3)
        await cluster.caught_up()
        await cluster.kill("master")
        await promote(cluster.slave(1), force=True)
        await fill(cluster, cluster.slave(1), 3)
        await trio.sleep(15)
        assert cluster.slave(2).store.log.end == cluster.slave(1).store.log.end
