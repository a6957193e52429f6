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


async def fill(them: Pair, member: Member, count: int) -> list[bytes]:
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
    async with pair() as them:
        wanted = await fill(them, them.master, 40)
        await trio.sleep(1)
        slave = them.slave()
        answer = await promote(slave)
        assert answer.logEnd == answer.masterLogEnd
        assert (await them.master.send("T", b"too late")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        wanted += await fill(them, slave, 40)
        await trio.sleep(5)
        assert await bodies_at(slave) == wanted == await bodies_at(them.master)
        them.same_log()
        assert slave.broker is not None
        assert (slave.broker.identity.broker_id, slave.broker.identity.slave) == (0, False)
        assert them.master.broker is not None
        assert (them.master.broker.identity.broker_id, them.master.broker.identity.slave) == (1, True)
        # The decision survives restarts of both.
        for name in ("master", "slave-1"):
            await them.stop(name)
        for name in ("slave-1", "master"):
            await them.start(name)
        wanted += await fill(them, slave, 5)
        await trio.sleep(5)
        assert await bodies_at(them.master) == wanted
        # And back.
        await promote(them.master)
        wanted += await fill(them, them.master, 5)
        await trio.sleep(5)
        assert await bodies_at(slave) == wanted == await bodies_at(them.master)


async def test_delays_and_transactions_continue_at_the_new_master(autojump_clock: MockClock) -> None:
    async with pair() as them:
        await them.master.send("T", b"first")
        await them.master.send("T", b"later", DELAY="4")  # 30 s
        await trio.sleep(1)
        await promote(them.slave())
        assert await bodies_at(them.slave()) == [b"first"]
        await trio.sleep(40)
        assert await bodies_at(them.slave()) == [b"first", b"later"]
        await trio.sleep(5)
        assert await bodies_at(them.master) == [b"first", b"later"]


async def test_a_switch_that_cannot_be_planned_changes_nothing(autojump_clock: MockClock) -> None:
    async with pair() as them:
        await fill(them, them.master, 3)
        await trio.sleep(1)
        await them.kill("master")
        answer = await them.slave().call(RequestCode.PROMOTE_SLAVE, PromoteHeader())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "--force" in (answer.remark or "")
        await them.start("master")
        await trio.sleep(10)
        assert (await them.master.send("T", b"go on")).code == 0


async def test_a_forced_switch_replaces_a_lost_master_and_reports_possible_loss(autojump_clock: MockClock) -> None:
    async with pair() as them:
        wanted = await fill(them, them.master, 10)
        await trio.sleep(1)
        end = them.master.store.log.end
        await them.kill("master")
        answer = await promote(them.slave(), force=True)
        assert (answer.logEnd, answer.masterLogEnd) == (end, end)
        wanted += await fill(them, them.slave(), 10)
        assert await bodies_at(them.slave()) == wanted


async def test_a_master_resumes_if_the_slave_dies_during_a_switch(autojump_clock: MockClock) -> None:
    async with pair() as them:
        await fill(them, them.master, 3)
        await trio.sleep(1)
        answer = await them.master.call(RequestCode.HAND_OVER, {"step": "stop", "brokerId": "1"})
        assert answer.code == 0
        assert (await them.master.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(20)
        assert (await them.master.send("T")).code == 0


async def test_a_demoted_master_refuses_writes_and_follows_its_new_master(autojump_clock: MockClock) -> None:
    async with pair() as them:
        await fill(them, them.master, 3)
        await trio.sleep(1)
        header = DemoteHeader(2, them.slave().ha_address)
        assert (await them.master.call(RequestCode.DEMOTE_MASTER, header)).code == 0
        assert (await them.master.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await promote(them.slave(), force=True)
        await fill(them, them.slave(), 3)
        await trio.sleep(10)
        them.same_log()


async def test_ha_status_shows_who_follows_whom(autojump_clock: MockClock) -> None:
    async with pair(slaves=2) as them:
        await fill(them, them.master, 3)
        await trio.sleep(2)
        found = await status(them.master)
        assert (found.master, found.inSyncSlaveNums) == (True, 2)
        assert {one.slaveAckOffset for one in found.haConnectionInfo} == {them.master.store.log.end}
        found = await status(them.slave(2))
        assert not found.master
        assert found.haClientRuntimeInfo.isActivated
        assert found.haClientRuntimeInfo.masterAddr == them.master.ha_address
        assert found.haClientRuntimeInfo.maxOffset == them.master.store.log.end


async def test_a_topic_known_only_from_the_log_exists_at_the_new_master(autojump_clock: MockClock) -> None:
    async with pair() as them:
        await fill(them, them.master, 3)
        await them.caught_up()
        slave = them.slave()
        assert slave.broker is not None
        slave.broker.tables.topics.delete("T")  # as if the master had gone before replicating it
        await them.kill("master")
        await promote(slave, force=True)
        assert len(await bodies_at(slave)) == 3


async def test_a_sync_master_is_replaced_by_a_sync_master(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as them:
        await trio.sleep(3)
        await fill(them, them.master, 3)
        await promote(them.slave())
        assert them.slave().store.config.broker_role.value == "SYNC_MASTER"
        await trio.sleep(5)
        await fill(them, them.slave(), 3)
        them.same_log()


async def test_another_slave_follows_the_new_master_soon(autojump_clock: MockClock) -> None:
    async with pair(slaves=2) as them:
        await fill(them, them.master, 3)
        await them.caught_up()
        await them.kill("master")
        await promote(them.slave(1), force=True)
        await fill(them, them.slave(1), 3)
        await trio.sleep(15)
        assert them.slave(2).store.log.end == them.slave(1).store.log.end
