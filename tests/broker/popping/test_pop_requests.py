"""Pop, ack and change over the wire, with a whole broker in virtual time."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rocketlet.broker import fact_log
from rocketlet.broker.filter.selector import Selector
from rocketlet.broker.handlers import pop_message
from rocketlet.broker.popping import waiting
from rocketlet.common.topic import STATE_TOPIC
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader
from rocketlet.remoting.protocol.popping import (
    NotificationAnswerHeader,
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageAnswerHeader,
    parse_info,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import POLLING_FULL, POLLING_TIMEOUT
from rocketlet.store.config import FlushDiskType
from rocketlet.store.errors import DiskFull
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import RunningBroker, memory_broker
from tests.support.popping import PoppedMessage, Popper
from tests.support.virtual_time import START_MS


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return sorted(got.body for got in messages)


async def send_some(one: RunningBroker, count: int, *, queues: int = 4, **properties: str) -> None:
    for number in range(count):
        answer = await one.send("T", b"m%d" % number, number % queues, **properties)
        assert answer.code == 0


async def test_acknowledged_messages_never_return_and_the_rest_do(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 8)
        popper = Popper(one)
        first = await popper.pop()
        assert bodies(first) == [b"m%d" % number for number in range(8)]
        assert {got.times for got in first} == {0}
        for got in first[:3]:
            assert await popper.ack(got) == 0
        assert await popper.ack_all(first[3:5]) == 0
        assert await popper.pop() == []
        await trio.sleep(30)
        second = await popper.pop()
        assert bodies(second) == bodies(first[5:])
        assert {got.times for got in second} == {1}


async def test_two_consumers_share_a_queue(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 8, queues=1)
        popper = Popper(one)
        left, right = await popper.pop(4), await popper.pop(4)
        assert bodies(left) + bodies(right) == [b"m%d" % number for number in range(8)]


async def test_a_restart_after_a_crash_restores_in_flight_messages(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 6, queues=1)
        popper = Popper(one)
        got = await popper.pop(4)
        await popper.ack(got[1])
        _, changed = await popper.change(got[0], 60_000)
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as two:
        popper = Popper(two)
        assert bodies(await popper.pop()) == [b"m4", b"m5"]
        await trio.sleep(30)
        assert [one.times for one in await popper.pop()] == [1, 1, 1, 1]
        assert await popper.ack(changed) == 0
        await trio.sleep(30)
        assert b"m0" not in bodies(await popper.pop())


async def test_a_parked_pop_is_woken_by_a_message(autojump_clock: MockClock) -> None:
    async with memory_broker() as one, one.client() as other, trio.open_nursery() as nursery:
        await send_some(one, 1)
        popper = Popper(one)
        await popper.ack_all(await popper.pop())
        got: list[PoppedMessage] = []

        async def wait() -> None:
            got.extend(await Popper(other).pop(poll_ms=15_000))

        nursery.start_soon(wait)
        await trio.sleep(5)
        began = trio.current_time()
        await one.send("T", b"late", 2)
        await trio.testing.wait_all_tasks_blocked()
        assert bodies(got) == [b"late"]
        assert trio.current_time() == began


async def test_a_parked_pop_is_woken_when_a_message_becomes_visible_again(autojump_clock: MockClock) -> None:
    async with memory_broker() as one, one.client() as other:
        await send_some(one, 1)
        popper = Popper(one, invisible_ms=3_000)
        await popper.pop()
        began = trio.current_time()
        assert bodies(await Popper(other).pop(poll_ms=15_000)) == [b"m0"]
        assert 3.0 <= trio.current_time() - began < 3.01


async def test_changing_the_invisible_time_to_zero_wakes_a_parked_pop(autojump_clock: MockClock) -> None:
    async with memory_broker() as one, one.client() as other, trio.open_nursery() as nursery:
        await send_some(one, 1)
        popper = Popper(one)
        (got,) = await popper.pop()
        again: list[PoppedMessage] = []

        async def wait() -> None:
            again.extend(await Popper(other).pop(poll_ms=15_000))

        nursery.start_soon(wait)
        await trio.sleep(1)
        began = trio.current_time()
        assert (await popper.change(got, 0))[0] == 0
        await trio.sleep(0.002)
        assert bodies(again) == [b"m0"]
        assert trio.current_time() - began < 0.01


async def test_a_parked_pop_ends_at_its_deadline(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 1)
        popper = Popper(one)
        await popper.ack_all(await popper.pop())
        began = trio.current_time()
        answer = await popper.answer(poll_ms=2_000)
        assert answer.code == 210
        assert trio.current_time() - began == 2.0
        assert (await popper.answer(poll_ms=1_000, bornTime=START_MS - 5_000)).code == 210


async def test_messages_become_dead_letters_after_the_groups_maximum_deliveries(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 1)
        popper = Popper(one, invisible_ms=1_000)
        for times in range(17):
            assert [got.times for got in await popper.pop(poll_ms=5_000)] == [times]
        await trio.sleep(3)
        assert await popper.pop() == []
        dead = await one.pull("%DLQ%PG", 0, 0)
        assert [record.body for record in dead.records] == [b"m0"]
        assert dead.records[0].reconsume_times == 17


async def test_an_old_handle_acknowledges_but_changes_nothing(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 1)
        popper = Popper(one, invisible_ms=1_000)
        (old,) = await popper.pop()
        await trio.sleep(1)
        (new,) = await popper.pop()
        assert (await popper.change(old, 60_000))[0] == 208
        assert (await popper.change(new, 60_000))[0] == 0
        assert await popper.ack(old) == 0
        await trio.sleep(100)
        assert await popper.pop() == []
        assert await popper.ack(new) == 0
        assert (await popper.change(new, 0))[0] == 0
        assert await popper.pop() == []


async def test_a_message_group_waits_only_for_its_own_messages(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for number, group in enumerate("aabab"):
            await one.send("T", f"{group}{number}".encode(), 0, __SHARDINGKEY=group)
        popper = Popper(one, order=True)
        (a0,) = await popper.pop(1)
        assert a0.body == b"a0"
        second = await popper.pop(2)
        assert [got.body for got in second] == [b"b2", b"b4"]
        assert await popper.pop() == []
        await popper.ack(a0)
        assert [got.body for got in await popper.pop()] == [b"a1", b"a3"]


async def test_a_repeated_attempt_id_gets_the_same_messages(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for number in range(4):
            await one.send("T", b"m%d" % number, 0)
        popper = Popper(one, order=True)
        first = await popper.pop(2, attemptId="x")
        again = await popper.pop(2, attemptId="x")
        assert [(got.body, got.times) for got in first] == [(got.body, got.times) for got in again]
        assert await popper.pop(2, attemptId="y") == []
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as two:
        popper = Popper(two, order=True)
        assert [(got.body, got.times) for got in await popper.pop(2, attemptId="x")] == [(b"m0", 0), (b"m1", 0)]


async def test_an_orderly_ack_wakes_the_pop_waiting_for_the_next_message(autojump_clock: MockClock) -> None:
    async with memory_broker() as one, one.client() as other, trio.open_nursery() as nursery:
        await send_some(one, 2, queues=1)
        popper = Popper(one, order=True)
        (first,) = await popper.pop(1)
        got: list[PoppedMessage] = []

        async def wait() -> None:
            got.extend(await Popper(other, order=True).pop(poll_ms=15_000))

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert got == []
        began = trio.current_time()
        await popper.ack(first)
        await trio.sleep(0.002)
        assert bodies(got) == [b"m1"]
        assert trio.current_time() - began < 0.01


async def test_a_pop_may_carry_a_filter(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for number in range(6):
            await one.send("T", b"m%d" % number, 0, TAGS="AB"[number % 2], n=str(number))
        assert bodies(await Popper(one).pop(exp="A", expType="TAG")) == [b"m0", b"m2", b"m4"]
        assert bodies(await Popper(one, "G2").pop(exp="n > 3", expType="SQL92")) == [b"m4", b"m5"]
        assert (await Popper(one, "G3").answer(exp="n >", expType="SQL92")).code == 23


async def test_a_long_filter_examines_few_records_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            at_once.append(0)

    def matches(selector: Selector, properties: bytes) -> bool:
        at_once[-1] += 1
        return honest(selector, properties)

    honest = Selector.matches
    monkeypatch.setattr(Selector, "matches", matches)
    long = "n = 240 AND " + " AND ".join(f"n <> {number}" for number in range(1000, 1800))
    async with memory_broker() as one:
        for number in range(241):
            await one.send("T", b"m", number % 4, n=str(number))
        trio.lowlevel.add_instrument(Steps())
        await Popper(one, "G1").pop(exp="n = 240", expType="SQL92")
        assert max(at_once) > 60
        at_once.clear()
        popper = Popper(one, "G2")
        while not await popper.pop(exp=long, expType="SQL92"):
            pass
        assert 0 < max(at_once) < 30


async def test_invalid_pops_are_refused(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 1)
        popper = Popper(one)
        assert (await popper.answer(33)).code == 1
        assert (await popper.answer(0)).code == 1
        assert (await popper.answer(topic="NONE")).code == 17
        assert (await popper.answer(consumerGroup="no group!")).code == 26
        assert (await popper.answer(queueId=99)).code == 1
        assert (await popper.answer(invisibleTime=-1)).code == 1
        (got,) = await popper.pop()
        assert await popper.ack(PoppedMessage(got.record, got.handle)) == 0
        never = got.handle.__class__(0, 1, 1, 0, 0, "broker-a", 0, 7)
        assert await popper.ack(PoppedMessage(got.record, never)) == 208
        bad = got.handle.__class__(0, 1, 1, 0, 0, "broker a", 0, 0)
        assert await popper.ack(PoppedMessage(got.record, bad)) == 1


async def test_notification_peek_and_polling_info(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 2)
        header = NotificationHeader("PG", "T", pollTime=1000)
        answer = await one.call(RequestCode.NOTIFICATION, header)
        assert from_ext(NotificationAnswerHeader, answer.ext).hasMsg
        answer = await one.call(RequestCode.PEEK_MESSAGE, PeekMessageHeader("PG", "T", maxMsgNums=2))
        assert answer.code == 0
        assert parse_info(from_ext(PopMessageAnswerHeader, answer.ext).startOffsetInfo) == {(0, 0): "0", (0, 1): "0"}
        assert len(await Popper(one).pop()) == 2
        answer = await one.call(RequestCode.NOTIFICATION, header)
        assert not from_ext(NotificationAnswerHeader, answer.ext).hasMsg
        assert (await one.call(RequestCode.PEEK_MESSAGE, PeekMessageHeader("PG", "T"))).code == 19
        answer = await one.call(RequestCode.POLLING_INFO, PollingInfoHeader("PG", "T"))
        assert (answer.ext or {})["pollingNum"] == "0"


async def test_the_committed_offset_is_the_first_unfinished_one(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 4, queues=1)
        popper = Popper(one)
        got = await popper.pop()
        await popper.ack_all([got[0], got[2]])
        await trio.sleep(2)
        header = QueryConsumerOffsetHeader(0, "T", "PG")
        assert ((await one.call(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext or {})["offset"] == "1"


async def test_a_reset_group_starts_again_at_the_new_offset(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 3, queues=1)
        popper = Popper(one)
        await popper.ack_all(await popper.pop())
        await trio.sleep(2)
        one.broker.tables.offsets.commit("PG", "T", 0, 1)
        assert bodies(await popper.pop()) == [b"m1", b"m2"]


async def test_a_reset_survives_an_immediate_crash(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 3, queues=1)
        popper = Popper(one)
        await popper.ack_all(await popper.pop())
        await trio.sleep(2)
        one.broker.tables.offsets.commit("PG", "T", 0, 1)
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as two:
        assert bodies(await Popper(two).pop()) == [b"m1", b"m2"]


async def test_pops_and_acks_of_one_turn_share_a_record(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await send_some(one, 40, queues=1)
        popper = Popper(one)
        got = await popper.pop(4)
        before = one.broker.store.queue_end(STATE_TOPIC, 0)
        async with trio.open_nursery() as nursery:
            for message in got:
                nursery.start_soon(popper.ack, message)
            nursery.start_soon(popper.pop, 4)
        # The first call is sent alone, the others together.
        assert one.broker.store.queue_end(STATE_TOPIC, 0) == before + 2


async def test_an_ack_is_answered_when_it_is_flushed(autojump_clock: MockClock) -> None:
    async with memory_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as one:
        await send_some(one, 2, queues=1)
        popper = Popper(one)
        (got,) = await popper.pop(1)
        assert await popper.ack(got) == 0
        disk = one.disk.copy().crash(Random(1))
    async with memory_broker(disk=disk) as two:
        await trio.sleep(40)
        assert bodies(await Popper(two).pop()) == [b"m1"]


async def test_a_pop_and_an_ack_that_a_fault_delays_are_answered(autojump_clock: MockClock) -> None:
    faults = Faults(lambda: one.broker.settle())
    async with memory_broker(faults=faults) as one:
        await send_some(one, 1)
        popper = Popper(one)
        for code in (RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE):
            faults.on(code, delay=0.2)
        (got,) = await popper.pop()
        assert await popper.ack(got) == 0
        assert trio.current_time() < 1, "answered by their own turns, not by the next one's"


async def test_what_a_full_disk_refuses_is_written_once_it_has_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: object) -> None:
        raise DiskFull("no space left")

    async with memory_broker() as one:
        await send_some(one, 2, queues=1)
        popper = Popper(one)
        (got,) = await popper.pop(1)
        with monkeypatch.context() as full:
            full.setattr(one.broker.store, "put", refuse)
            assert await popper.ack(got) == 14
            assert (await popper.answer(1)).code == 14, "nothing is given while nothing can be written"
        assert await popper.ack(got) == 0
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as two:
        await trio.sleep(40)
        assert bodies(await Popper(two).pop()) == [b"m1"]


async def test_a_snapshot_and_the_later_records_restore_the_same_tables(
    autojump_clock: MockClock, monkeypatch: object
) -> None:
    monkeypatch.setattr(fact_log, "SNAPSHOT_RECORDS", 10)  # type: ignore[attr-defined]
    async with memory_broker() as one:
        await send_some(one, 30)
        popper = Popper(one)
        kept: list[PoppedMessage] = []
        for _ in range(10):
            got = await popper.pop(3)
            await popper.ack(got[0])
            kept += got[1:]
            await trio.sleep(0.5)
        assert one.broker.parts.pops._ledger._facts._begin > 0
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as two:
        popper = Popper(two)
        assert await popper.pop() == []
        await trio.sleep(40)
        assert bodies(await popper.pop()) == bodies(kept)


async def test_the_state_topic_is_hidden_from_clients(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        await send_some(one, 1)
        await Popper(one).pop()
        for topic in ("rmq_sys_rocketlet_state", "rmq_sys_wheel_timer"):
            assert (await one.send(topic, b"forged")).code == 16
            assert (await one.pull(topic, 0, 0)).code == 17


async def test_a_pop_from_any_of_very_many_queues_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_message, "MAX_QUEUES", 3)
    async with memory_broker() as one:
        await send_some(one, 4)
        popper = Popper(one)
        refused = await popper.answer()
        assert refused.code == 1
        assert "a pop looks into 3 at most" in (refused.remark or "")
        assert bodies(await popper.pop(queueId=2)) == [b"m2"]


async def test_the_queues_that_pops_wait_for_are_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 300 bytes for each group that waits: 100,000 groups at 1,024 queues would take 30 GB."""
    monkeypatch.setattr(waiting, "MAX_WATCHED", 6)
    async with memory_broker() as one, trio.open_nursery() as nursery:
        await send_some(one, 4)
        first, second = Popper(one, "G1"), Popper(one, "G2")
        for popper in (first, second):
            assert len(await popper.pop()) == 4
        nursery.start_soon(partial(first.answer, 32, poll_ms=5_000))
        await trio.sleep(1)
        assert (await second.answer(poll_ms=5_000)).code == POLLING_FULL
        notice = NotificationHeader(consumerGroup="G2", topic="T", queueId=-1, pollTime=5_000)
        found = from_ext(NotificationAnswerHeader, (await one.call(RequestCode.NOTIFICATION, notice)).ext)
        assert found.pollingFull
        await trio.sleep(5)
        began = trio.current_time()
        assert (await second.answer(poll_ms=5_000)).code == POLLING_TIMEOUT
        assert trio.current_time() - began >= 5
