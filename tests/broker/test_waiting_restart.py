"""Delays across restarts: after a clean close, a kill or a power cut, no message is stuck or duplicated."""

from __future__ import annotations

from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.clock import TrioWallClock
from rocketlet.common.message_record import Record
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended, Put
from tests.support.virtual_time import START_MS
from tests.support.waiting_parts import DELAYS, WaitingParts, waiting


async def test_shorter_or_fewer_levels_leave_no_message_waiting(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    async with waiting(disk) as parts:
        parts.send("T", b"of level 3", DELAY="3")
        parts.send("T", b"of level 5", DELAY="5")
    async with waiting(disk, TrioWallClock(START_MS), message_delay_level="1s 1s 2s") as parts:
        await trio.sleep(0.01)
        assert parts.bodies("T") == [b"of level 3"], "its level is two seconds now"
        await trio.sleep(60)
        assert parts.bodies("T") == [b"of level 3", b"of level 5"], "its level is gone, its time is not"


async def test_offsets_of_a_level_are_saved_and_loaded(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    async with waiting(disk) as parts:
        parts.send("T", b"x", DELAY="1")
        await trio.sleep(2)
    async with waiting(disk) as parts:
        assert parts.delays.get(1) == 1
        await trio.sleep(2)
        assert parts.bodies("T") == [b"x"]


async def test_killed_between_a_delivery_and_saving_its_offset(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    disk = MemoryDisk()
    clock = TrioWallClock(START_MS)
    async with waiting(disk, clock) as parts:
        for number in range(100):
            parts.send("T", b"%d" % number, number % 3, DELAY="1")
        parts.send("T", b"same", DELAY="1", UNIQ_KEY="K")
        parts.send("T", b"same", DELAY="1", UNIQ_KEY="K")
        parts.send("U", b"later", DELAY="2")
        await trio.sleep(1.5)
        parts.send("T", b"new", DELAY="1")
        killed = disk.copy()
        assert disk.read_file(DELAYS) is None
    async with waiting(killed, clock) as parts:
        assert "102 messages were delivered already" in caplog.text
        await trio.sleep(10)
        for queue_id in range(3):
            expected = [b"%d" % number for number in range(100) if number % 3 == queue_id]
            assert parts.bodies("T", queue_id)[: len(expected)] == expected
        assert parts.bodies("T", 0)[34:] == [b"same", b"same", b"new"]
        assert parts.bodies("U") == [b"later"]


async def test_killed_in_the_middle_of_a_batch(autojump_clock: trio.testing.MockClock) -> None:
    """The kill comes between two puts of one turn, which no handler ever sees."""
    disk = MemoryDisk()
    clock = TrioWallClock(START_MS)
    killed: list[MemoryDisk] = []
    async with waiting(disk, clock) as parts:
        for number in range(20):
            parts.put("T", b"%d" % number, DELAY="1")
        parts.store.settle()
        put = parts.store.put
        delivered = 0

        def put_and_die(message: Put) -> Appended:
            nonlocal delivered
            delivered += 1
            appended = put(message)
            if delivered == 7:
                killed.append(disk.copy())
            return appended

        parts.store.put = put_and_die  # type: ignore[method-assign]
        await trio.sleep(1.5)
    async with waiting(killed[0], clock) as parts:
        await trio.sleep(1)
        assert parts.bodies("T") == [b"%d" % number for number in range(20)]


async def test_an_offset_beyond_a_queue_truncated_by_a_crash(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with waiting(disk) as parts:
        parts.send("T", b"x", DELAY="1")
        await trio.sleep(2)
    disk.write_file(DELAYS, b'{"offsetTable":{1:7,}}')
    async with waiting(disk) as parts:
        assert "outside" in caplog.text
        parts.send("T", b"y", DELAY="1")
        await trio.sleep(2)
        assert parts.bodies("T") == [b"x", b"y"]


DELAYS_OF = (1000, 2000, 5000, 5000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["close", "kill", "power", "blackout", "save"]), st.integers(0, 9)),
    ),
    max_size=20,
)


@given(STEPS)
def test_any_order_of_sends_and_restarts(steps: list[tuple[str, int]]) -> None:
    """Each message that is in the log is delivered once, not before its time, in the order of its level."""

    async def run() -> None:
        disk, clock = MemoryDisk(), TrioWallClock(START_MS)
        sent: dict[bytes, tuple[int, int]] = {}
        todo = [*steps, ("close", 0), ("wait", 20), ("end", 0)]
        while todo:
            async with waiting(disk, clock, message_delay_level="1s 2s 5s 5s") as parts:
                disk = await live(parts, todo, sent)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def live(parts: WaitingParts, todo: list[tuple[str, int]], sent: dict[bytes, tuple[int, int]]) -> MemoryDisk:
    """Take steps until one of them ends the process. Returns the remaining disk."""
    kept = {bytes(record.body) for queue_id in range(4) for record in parts.records(SCHEDULE_TOPIC, queue_id)}
    for lost in sent.keys() - kept:
        del sent[lost]
    number_of_next = max(map(int, sent), default=-1) + 1
    while todo:
        step, number = todo.pop(0)
        if step == "send":
            body, number_of_next = b"%d" % number_of_next, number_of_next + 1
            parts.send("T", body, 0, DELAY=str(number), UNIQ_KEY="always the same")
            sent[body] = (parts.clock(), number)
        elif step == "wait":
            await trio.sleep(number)
        elif step == "save":
            parts.save()
        elif step == "end":
            check(parts.records("T"), sent)
        elif step == "kill":
            return parts.disk.copy()
        elif step == "power":
            await parts.store.flushed_to(parts.store.log.end)
            return parts.disk.crash(Random(number))
        elif step == "blackout":  # with whatever the disk has of it
            return parts.disk.crash(Random(number))
        else:
            break
    return parts.disk


def check(found: list[Record], sent: dict[bytes, tuple[int, int]]) -> None:
    bodies = [bytes(record.body) for record in found]
    assert sorted(bodies) == sorted(sent), "each once"
    for level in range(1, 5):
        of_level = [body for body in bodies if sent[body][1] == level]
        assert of_level == sorted(of_level, key=int), "in order"
    for record in found:
        at, level = sent[bytes(record.body)]
        assert record.store_timestamp - at >= DELAYS_OF[level - 1] - 1, "not before its time"
