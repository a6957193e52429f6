"""Pops and delayed messages across a change of masters: the old master's answers hold at the new one."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.popping import RecallMessageHeader
from rocketlet.remoting.protocol.replication import PromoteAnswerHeader, PromoteHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.pair import Member, pair
from tests.support.popping import PoppedMessage, Popper


async def promote(member: Member, **header: bool) -> None:
    answer = await member.call(RequestCode.PROMOTE_SLAVE, PromoteHeader(**header))
    assert answer.code == 0, answer.remark
    assert from_ext(PromoteAnswerHeader, answer.ext).logEnd > 0


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return sorted(got.body for got in messages)


async def test_a_new_master_knows_the_messages_in_flight(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        master, slave = cluster.master, cluster.slave()
        for number in range(6):
            await master.send("T", b"m%d" % number, 0)
        recalled = await master.send("T", b"recalled", TIMER_DELAY_SEC="20")
        await master.send("T", b"delayed", TIMER_DELAY_SEC="20")
        handle = (recalled.ext or {})["recallHandle"]
        assert (await master.call(RequestCode.RECALL_MESSAGE, RecallMessageHeader("PG", "T", handle))).code == 0
        popper = Popper(master, broker_name=handle and master.broker.identity.name)  # type: ignore[union-attr]
        got = await popper.pop(4)
        assert await popper.ack_all(got[:2]) == 0
        _, extended = await popper.change(got[2], 300_000)
        await trio.sleep(3)
        assert (await Popper(slave).answer()).code == 14
        await promote(slave)
        assert (await popper.answer()).code == 14
        there = Popper(slave)
        assert bodies(await there.pop()) == [b"m4", b"m5"]
        await trio.sleep(30)
        again = await there.pop()
        assert bodies(again) == [b"delayed", b"m3", b"m4", b"m5"]
        assert {got.body: got.times for got in again} == {b"delayed": 0, b"m3": 1, b"m4": 1, b"m5": 1}
        assert await there.ack(extended) == 0
        assert await there.ack_all(again) == 0
        await trio.sleep(400)
        assert await there.pop() == []


async def test_a_slave_replaces_its_killed_master(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        master, slave = cluster.master, cluster.slave()
        for number in range(8):
            await master.send("T", b"m%d" % number, 0)
            await master.send("T", b"d%d" % number, 1, TIMER_DELAY_MS=str(1000 + 500 * number))
        popper = Popper(master)
        await trio.sleep(2.2)
        got = await popper.pop()
        await popper.ack_all(got)
        await cluster.caught_up()
        await cluster.kill("master")
        await promote(slave, force=True)
        there = Popper(slave)
        await trio.sleep(60)
        left = await there.pop()
        assert bodies(got + left) == sorted([b"m%d" % n for n in range(8)] + [b"d%d" % n for n in range(8)])
