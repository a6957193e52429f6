"""Delayed messages are delivered when due, once, in order, whatever happens to the broker meanwhile."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from operator import sub
from pathlib import Path

import pytest
import trio

from rocketlet.broker.delay_levels import InvalidDelay, delay_level
from rocketlet.broker.delayed_delivery import LONGEST_PAUSE, Origin, origin_of
from rocketlet.broker.put_again import put_again
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Record, decode, encode
from rocketlet.common.topic import HALF_TOPIC, SCHEDULE_TOPIC
from rocketlet.store.config import StoreConfig
from rocketlet.store.errors import DiskFull
from rocketlet.store.layout.queue_rules import parse_delay_levels
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Put
from tests.support.builders import record
from tests.support.virtual_time import START_MS, ManualClock
from tests.support.waiting_parts import HOST, waiting

LEVELS = parse_delay_levels(StoreConfig().message_delay_level)


async def test_each_of_the_eighteen_levels(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        for level in range(1, 19):
            parts.send("T", b"%d" % level, DELAY=str(level))
        for level in range(1, 19):
            await trio.sleep((LEVELS[level - 1] - (parts.clock() - START_MS) - 2) / 1000)
            assert len(parts.bodies("T")) == level - 1
            await trio.sleep(0.004)
            assert parts.bodies("T")[-1] == b"%d" % level
        stored = [found.store_timestamp - START_MS for found in parts.records("T")]
        # Two clocks, each rounded to milliseconds, may differ by one.
        assert all(0 <= late <= 1 for late in map(sub, stored, LEVELS))
        assert [offset for _, offset, _ in parts.delivery.progress()] == [1] * 18


async def test_waiting_deliveries_do_not_poll(autojump_clock: trio.testing.MockClock) -> None:
    """Two hours of waiting are as few turns of the loop as the longest sleep allows."""
    async with waiting(MemoryDisk()) as parts:
        parts.send("T", b"late", DELAY="18")
        looks = 0

        class Count(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                nonlocal looks
                looks += task.name.startswith("delay level")

        trio.lowlevel.add_instrument(Count())
        await trio.sleep(7200.01)
        assert parts.bodies("T") == [b"late"]
        assert looks <= 7200 / 10 + 20


async def test_messages_of_one_level_are_delivered_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        for number in range(200):
            parts.put("T", b"%d" % number, 3, DELAY="1", TAGS="A", KEYS="k", WAIT="true")
        parts.store.settle()
        await trio.sleep(1.01)
        assert parts.bodies("T", 3) == [b"%d" % number for number in range(200)]
        found, delayed = parts.records("T", 3)[0], parts.records(SCHEDULE_TOPIC, 0)[0]
        assert found.properties == delayed.properties
        assert decode_bytes(found.properties)["REAL_QID"] == "3"
        assert (found.born_host, found.store_host) == (delayed.born_host, HOST)
        queue = parts.store.queue("T", 3)
        entry = queue.entry(0) if queue is not None else None
        assert entry is not None
        assert entry[2] == ord("A")
        assert len(parts.store.find_by_key("T", "k", 64, 0, START_MS * 2).records) == 64


async def test_a_level_above_the_last_is_the_last(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk(), message_delay_level="1s 2s") as parts:
        parts.send("T", b"x", DELAY="99")
        assert decode_bytes(parts.records(SCHEDULE_TOPIC, 1)[0].properties)["DELAY"] == "2"
        await trio.sleep(2.01)
        assert parts.bodies("T") == [b"x"]


async def test_a_clock_set_back_delays_nothing(autojump_clock: trio.testing.MockClock) -> None:
    clock = ManualClock()
    async with waiting(MemoryDisk(), clock) as parts:
        parts.send("T", b"x", DELAY="2")
        clock.advance(hours=-1)
        await trio.sleep(10)
        assert parts.bodies("T") == [b"x"]


async def test_a_failed_put_is_retried(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting(MemoryDisk()) as parts:
        for number in range(3):
            parts.put("T", b"%d" % number, DELAY="1")
        parts.store.settle()
        put = parts.store.put
        refused = 0

        def refuse(message: Put) -> object:
            nonlocal refused
            if trio.current_time() < 30 and message.body != b"0":
                refused += 1
                raise DiskFull("no room")
            return put(message)

        parts.store.put = refuse  # type: ignore[method-assign, assignment]
        await trio.sleep(20)
        assert parts.bodies("T") == [b"0"]
        assert parts.delays.get(1) == 1
        assert caplog.text.count("tried again") == 1, "told once"
        await trio.sleep(10 + LONGEST_PAUSE)
        assert parts.bodies("T") == [b"0", b"1", b"2"]
        assert 5 < refused < 20, "with growing pauses"
        assert parts.delivery.statistics().failed == refused


async def test_unreadable_and_undeliverable_messages_are_skipped(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting(MemoryDisk()) as parts:
        first = parts.send("T", b"broken", DELAY="1")
        parts.store.put(Put(SCHEDULE_TOPIC, 0, b"from nowhere", b"DELAY\x011"))
        parts.store.put(Put(SCHEDULE_TOPIC, 0, b"half", b"REAL_TOPIC\x01" + HALF_TOPIC.encode() + b"\x02REAL_QID\x010"))
        parts.send("T", b"whole", DELAY="1")
        file = parts.store.log.files.files[0]
        file.buffer[first.log_offset + 4 : first.log_offset + 8] = b"\0\0\0\0"
        await trio.sleep(2)
        assert parts.bodies("T") == [b"whole"]
        assert "cannot be read" in caplog.text
        assert "goes nowhere" in caplog.text
        assert parts.delivery.statistics().skipped == 3


@pytest.mark.parametrize("stored", [-5, 3, 1000])
async def test_an_offset_outside_the_queue(autojump_clock: trio.testing.MockClock, stored: int) -> None:
    async with waiting(MemoryDisk(), deliver=False) as parts:
        for number in range(2):
            parts.send("T", b"%d" % number, DELAY="1")
        parts.delays.set(1, stored)
        async with trio.open_nursery() as nursery:
            await nursery.start(parts.delivery.run)
            parts.send("T", b"new", DELAY="1")
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert parts.bodies("T") == ([b"0", b"1", b"new"] if stored < 0 else [b"new"])


def test_origin() -> None:
    def origin(**properties: str) -> object:
        return origin_of(record(properties=properties))

    assert origin(REAL_TOPIC="T", REAL_QID="2") is not None
    assert origin(REAL_TOPIC="../T", REAL_QID="2") is None
    assert origin(REAL_TOPIC="T", REAL_QID="-1") is None
    assert origin(REAL_TOPIC="T", REAL_QID="x") is None
    assert origin(REAL_QID="2") is None


def test_levels() -> None:
    assert delay_level({}) == 0
    assert delay_level({"DELAY": "-1"}) == -1
    with pytest.raises(InvalidDelay):
        delay_level({"DELAY": "soon"})


@pytest.fixture(scope="module")
def recorded(vectors: Path) -> list[tuple[Record, int]]:
    """The records of a Java broker's recorded store, and the tags codes of their queue entries."""
    case = vectors / "stores" / "mixed"
    expected = json.loads((case / "expected.json").read_text())["records"]
    with tarfile.open(case / "store.tar.gz") as archive:
        member = archive.extractfile("store/commitlog/00000000000000000000")
        assert member is not None
        log = member.read()
    return [(decode(log, record["phy"]), record["tagsCode"]) for record in expected]


def same_but_for_its_place(ours: Record, theirs: Record) -> bool:
    return encode(replace(ours, queue_offset=theirs.queue_offset, log_offset=theirs.log_offset)) == encode(theirs)


async def test_delayed_records_equal_a_java_brokers(recorded: list[tuple[Record, int]]) -> None:
    clock = ManualClock()
    seen = 0
    async with waiting(MemoryDisk(), clock, deliver=False) as parts:
        for theirs, tags_code in recorded:
            properties = decode_bytes(theirs.properties)
            if theirs.topic != SCHEDULE_TOPIC or theirs.reconsume_times:
                continue
            sent = [f"{name}\x01{value}" for name, value in properties.items() if not name.startswith("REAL_")]
            put = Put(
                properties["REAL_TOPIC"], int(properties["REAL_QID"]), theirs.body, "\x02".join(sent).encode(),
                born_timestamp=theirs.born_timestamp, born_host=theirs.born_host, store_host=theirs.store_host,
            )  # fmt: skip
            clock.now = theirs.store_timestamp
            appended = parts.store.put(parts.detours.delayed(put))
            parts.store.settle()
            assert same_but_for_its_place(parts.records(SCHEDULE_TOPIC, theirs.queue_id)[-1], theirs)
            queue = parts.store.queue(SCHEDULE_TOPIC, theirs.queue_id)
            entry = queue.entry(appended.queue_offset) if queue is not None else None
            assert entry is not None
            assert entry[2] == tags_code
            seen += 1
    assert seen == 6


async def test_delivered_records_equal_a_java_brokers(recorded: list[tuple[Record, int]]) -> None:
    """The recorded store's deliveries, repeated from a log with its delayed records."""
    clock = ManualClock()
    delivered = [found for found in recorded if b"DELAY" in found[0].properties and b"TopicD" in found[0].properties]
    delivered = [found for found in delivered if found[0].topic == "TopicD"]
    async with waiting(MemoryDisk(), clock, deliver=False) as parts:
        for theirs, tags_code in delivered:
            delayed = next(
                record for record, _ in recorded if record.topic == SCHEDULE_TOPIC and record.body == theirs.body
                and record.born_timestamp == theirs.born_timestamp
            )  # fmt: skip
            origin = origin_of(delayed)
            assert origin == Origin("TopicD", theirs.queue_id)
            clock.now = theirs.store_timestamp
            put = put_again(delayed, origin.topic, origin.queue_id)
            assert put.tags_code == tags_code
            parts.store.put(put)
            parts.store.settle()
            assert same_but_for_its_place(parts.records("TopicD", theirs.queue_id)[-1], theirs)
    assert len(delivered) == 4
