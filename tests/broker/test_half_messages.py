"""Transactions end once: commit, rollback, copies, refusals, and the resulting records."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from rocketlet.broker.half_messages import EndRefused, half_of
from rocketlet.broker.put_again import put_again
from rocketlet.common.message_properties import decode_bytes, encode
from rocketlet.common.message_record import Record
from rocketlet.common.message_record import decode as decode_record
from rocketlet.common.message_record import encode as encode_record
from rocketlet.common.topic import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TRANS_CHECK_MAX_TOPIC, TRANSACTION_GROUP
from rocketlet.store.errors import DiskFull
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Put
from tests.support.builders import record
from tests.support.virtual_time import ManualClock
from tests.support.waiting_parts import CLIENT, WaitingParts, waiting


async def offsets_of(parts: WaitingParts) -> tuple[int | None, int | None]:
    """The saved offsets, of flushed records."""
    await parts.store.flush()
    return (
        parts.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0),
        parts.offsets.get(TRANSACTION_GROUP, OP_HALF_TOPIC, 0),
    )


async def test_commit() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        half = parts.prepare("T", b"paid", TAGS="A", KEYS="order")
        assert parts.bodies("T", 0) == []
        parts.commit(half)
        found = parts.records("T")[0]
        assert (found.body, found.sys_flag, found.prepared_offset) == (b"paid", 8, half.log_offset)
        assert found.born_host == CLIENT
        assert parts.bodies(OP_HALF_TOPIC) == [b"0"]
        assert parts.records(OP_HALF_TOPIC)[0].properties == b"WAIT\x01true\x02TAGS\x01d"
        queue = parts.store.queue("T", 0)
        entry = queue.entry(0) if queue is not None else None
        assert entry is not None
        assert entry[2] == ord("A")
        assert len(parts.store.find_by_key("T", "order", 9, 0, 1 << 60).records) == 1
        assert await offsets_of(parts) == (1, 1)


async def test_a_rollback_leaves_only_its_op_message() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        parts.roll_back(parts.prepare("T", b"never"))
        assert parts.bodies("T") == []
        assert parts.bodies(OP_HALF_TOPIC) == [b"0"]


@pytest.mark.parametrize("first", ["commit", "roll_back"])
@pytest.mark.parametrize("second", ["commit", "roll_back"])
async def test_the_first_end_wins(first: str, second: str) -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        parts.prepare("T", b"open")
        half = parts.prepare("T", b"x")
        getattr(parts, first)(half)
        with pytest.raises(EndRefused, match="first end"):
            getattr(parts, second)(half)
        assert parts.bodies("T") == ([b"x"] if first == "commit" else [])
        assert len(parts.bodies(OP_HALF_TOPIC)) == 1


async def test_ends_in_any_order_advance_the_queues_in_order() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        halves = [parts.prepare("T", b"%d" % number) for number in range(4)]
        for number, expected in ((2, (None, None)), (0, (1, None)), (3, (1, None)), (1, (4, 4))):
            parts.commit(halves[number])
            assert await offsets_of(parts) == expected
        assert parts.bodies(OP_HALF_TOPIC) == [b"2", b"0", b"3", b"1"]


async def test_invalid_ends_are_refused() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        other = parts.send("T", b"no half")
        half = parts.prepare("T", b"x")
        for log_offset, offset, group, reason in (
            (999_999, 0, "P", "failed"),
            (other.log_offset, 0, "P", "failed"),
            (half.log_offset + 1, 0, "P", "failed"),
            (half.log_offset, 0, "Q", "group wrong"),
            (half.log_offset, 1, "P", "offset wrong"),
        ):
            for end in (parts.halves.commit, parts.halves.roll_back):
                with pytest.raises(EndRefused, match=reason):
                    end(log_offset, offset, group)
        assert parts.bodies(OP_HALF_TOPIC) == []
        parts.commit(half)


async def test_a_delay_counts_from_the_commit(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        half = parts.prepare("T", b"x", DELAY="1")
        await trio.sleep(5)
        assert parts.bodies("T") == []
        parts.commit(half)
        assert parts.records(SCHEDULE_TOPIC)[0].sys_flag == 8
        await trio.sleep(0.9)
        assert parts.bodies("T") == []
        await trio.sleep(0.2)
        assert parts.bodies("T") == [b"x"]


async def test_an_end_that_cannot_be_stored_has_no_effect() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        half = parts.prepare("T", b"x")
        put_batch = parts.store.put_batch

        def refuse(messages: object) -> object:
            raise DiskFull("no room")

        parts.store.put_batch = refuse  # type: ignore[method-assign, assignment]
        with pytest.raises(DiskFull):
            parts.commit(half)
        assert not parts.halves.is_over(half.queue_offset)
        parts.store.put_batch = put_batch  # type: ignore[method-assign]
        parts.roll_back(half)
        assert parts.bodies("T") == []


async def test_an_old_id_ends_the_copy() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        first = parts.prepare("T", b"x")
        half = parts.halves.read(0)
        assert half is not None
        copy = parts.halves.put_back(half, half.properties | {"TRANSACTION_CHECK_TIMES": "1"})
        # Before dispatch: the copy is known by its log offset.
        parts.commit(first)
        assert copy.offset == 1
        assert parts.records("T")[0].prepared_offset == copy.record.log_offset
        assert parts.bodies(OP_HALF_TOPIC) == [b"1"]
        for name in (first.log_offset, first.queue_offset), (copy.record.log_offset, copy.offset):
            with pytest.raises(EndRefused, match="over already"):
                parts.halves.roll_back(*name, "P")
        assert await offsets_of(parts) == (2, 1)


async def test_giving_up_ends_a_transaction_which_can_be_resumed() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        first = parts.prepare("T", b"x", TRANSACTION_CHECK_TIMES="15")
        half = parts.halves.read(0)
        assert half is not None
        assert half.checks == 15
        parts.halves.give_up(half)
        parts.store.settle()
        assert parts.bodies(TRANS_CHECK_MAX_TOPIC) == [b"x"]
        with pytest.raises(EndRefused):
            parts.commit(first)
        given_up = parts.records(TRANS_CHECK_MAX_TOPIC)[0]
        resumed = parts.halves.resume(given_up.log_offset)
        parts.store.settle()
        assert resumed is not None
        assert decode_bytes(parts.records(HALF_TOPIC)[-1].properties)["TRANSACTION_CHECK_TIMES"] == "0"
        assert parts.halves.resume(given_up.log_offset) is None, "it goes on already"
        parts.commit(first)
        assert parts.bodies("T") == [b"x"]
        with pytest.raises(EndRefused, match="committed"):
            parts.halves.resume(given_up.log_offset)


async def test_resuming_a_transaction_that_is_not_given_up() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        half, other = parts.prepare("T", b"x"), parts.send("T", b"y")
        assert parts.halves.resume(half.log_offset) is None
        with pytest.raises(EndRefused, match="no half message"):
            parts.halves.resume(other.log_offset)


async def test_an_invalid_half_message() -> None:
    async with waiting(MemoryDisk(), ManualClock()) as parts:
        parts.store.put(Put(HALF_TOPIC, 0, b"x", b"PGROUP\x01P"))
        parts.store.settle()
        assert parts.halves.read(0) is None
        assert parts.halves.read(1) is None
        parts.halves.skip(0)
        assert parts.halves.next_open() == 1
        assert "done=1" in repr(parts.halves)
    for properties in ({"REAL_TOPIC": "a/b", "REAL_QID": "0"}, {"REAL_TOPIC": "T", "REAL_QID": "-1"}):
        assert half_of(record(properties=properties)) is None


# --- as written by RocketMQ ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(vectors: Path) -> list[Record]:
    case = vectors / "stores" / "mixed"
    expected = json.loads((case / "expected.json").read_text())["records"]
    with tarfile.open(case / "store.tar.gz") as archive:
        member = archive.extractfile("store/commitlog/00000000000000000000")
        assert member is not None
        log = member.read()
    return [decode_record(log, record["phy"]) for record in expected]


def same_but_for_its_place(ours: Record, theirs: Record) -> bool:
    placed = replace(
        ours, queue_offset=theirs.queue_offset, log_offset=theirs.log_offset, store_timestamp=theirs.store_timestamp,
        prepared_offset=theirs.prepared_offset,
    )  # fmt: skip
    return encode_record(placed) == encode_record(theirs)


async def test_records_equal_a_java_brokers(recorded: list[Record]) -> None:
    """Each transaction of the recorded store is repeated: half, copies, commit, op and given up are equal byte for
    byte."""
    clock = ManualClock()
    kinds: dict[str, int] = {}
    async with waiting(MemoryDisk(), clock, deliver=False) as parts:
        parts.identity.store_host = recorded[0].store_host
        for theirs in recorded:
            properties = decode_bytes(theirs.properties)
            if theirs.topic == HALF_TOPIC and "TRANSACTION_CHECK_TIMES" not in properties:
                raw = encode({name: value for name, value in properties.items() if not name.startswith("REAL_")})
                put = Put(
                    properties["REAL_TOPIC"], int(properties["REAL_QID"]), theirs.body, raw.encode(), sys_flag=4,
                    born_timestamp=theirs.born_timestamp, born_host=theirs.born_host, store_host=theirs.store_host,
                )  # fmt: skip
                parts.store.put(parts.detours.half(put))
                kind = "half"
            elif theirs.topic == HALF_TOPIC:
                half = next(
                    found for offset in parts.half_offsets() if (found := parts.halves.read(offset))
                    and not parts.halves.is_over(offset) and found.record.body == theirs.body
                )  # fmt: skip
                times = properties["TRANSACTION_CHECK_TIMES"]
                parts.halves.put_back(half, half.properties | {"TRANSACTION_CHECK_TIMES": times})
                kind = "copy"
            elif theirs.topic == TRANS_CHECK_MAX_TOPIC:
                half = next(
                    found for offset in parts.half_offsets() if (found := parts.halves.read(offset))
                    and not parts.halves.is_over(offset) and found.record.body == theirs.body
                )  # fmt: skip
                parts.halves.give_up(half)
                kind = "given up"
            elif theirs.topic == "TopicT":
                original = next(found for found in recorded if found.log_offset == theirs.prepared_offset)
                offset = next(
                    found.queue_offset for found in parts.records(HALF_TOPIC)
                    if found.properties == original.properties and found.body == original.body
                )  # fmt: skip
                half = parts.halves.read(offset)
                assert half is not None
                parts.halves.commit(half.record.log_offset, offset, "PG_tx")
                kind = "commit"
            else:
                continue
            parts.store.settle()
            assert same_but_for_its_place(parts.records(theirs.topic, theirs.queue_id)[-1], theirs), kind
            kinds[kind] = kinds.get(kind, 0) + 1
        op = next(found for found in recorded if found.topic == OP_HALF_TOPIC)
        ours = replace(parts.records(OP_HALF_TOPIC)[0], born_timestamp=op.born_timestamp)
        assert same_but_for_its_place(ours, op)
    assert kinds == {"half": 6, "copy": 5, "commit": 3, "given up": 1}
    assert put_again(recorded[0], "T", 0).tags_code != 0
