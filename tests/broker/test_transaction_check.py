"""Rounds of transaction checks: which are checked, when, how often, and what happens to those nobody ends."""

from __future__ import annotations

import pytest
import trio

from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import decode
from rocketlet.common.topic import HALF_TOPIC, TRANS_CHECK_MAX_TOPIC
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.errors import DiskFull
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended
from tests.support.waiting_parts import WaitingParts, waiting

# The defaults: transactionTimeOut 6 s, transactionCheckInterval 60 s, transactionCheckMax 15.


def questions(parts: WaitingParts) -> list[CheckTransactionStateHeader]:
    return [from_ext(CheckTransactionStateHeader, command.ext) for command in parts.producer.checks]


def as_asked(header: CheckTransactionStateHeader) -> Appended:
    return Appended(header.commitLogOffset, 0, header.tranStateTableOffset, 0, 0)


async def test_an_open_transaction_is_checked(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        half = parts.prepare("T", b"x", 3)
        done = parts.prepare("T", b"done")
        parts.commit(done)
        await trio.sleep(7)
        await parts.check.check()
        (question,), (command,) = questions(parts), parts.producer.checks
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        copy = parts.records(HALF_TOPIC)[-1]
        assert (question.tranStateTableOffset, question.commitLogOffset) == (2, copy.log_offset)
        assert question.transactionId == question.msgId == f"{1:032X}"
        assert question.offsetMsgId == parts.identity.message_id(copy.log_offset)
        shown = decode(command.body)
        assert (shown.topic, shown.queue_id, shown.body) == ("T", 3, b"x")
        assert (shown.queue_offset, shown.log_offset) == (2, copy.log_offset)
        assert decode_bytes(shown.properties)["TRANSACTION_CHECK_TIMES"] == "1"
        parts.commit(as_asked(question))
        assert parts.bodies("T", 3) == [b"x"]
        assert half.queue_offset == 0
        await trio.sleep(60)
        await parts.check.check()
        assert len(questions(parts)) == 1


async def test_young_transactions_wait_and_delay_only_younger_ones(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        parts.prepare("T", b"old")
        await trio.sleep(5)
        parts.prepare("T", b"young")
        await trio.sleep(1.5)
        await parts.check.check()
        assert [decode(command.body).body for command in parts.producer.checks] == [b"old"]
        await parts.check.check()
        assert len(parts.producer.checks) == 1, "the copy is as old as its original, but was stored just now"
        await trio.sleep(5)
        await parts.check.check()
        assert [decode(command.body).body for command in parts.producer.checks] == [b"old", b"young", b"old"]


async def test_fifteen_checks_and_then_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts, trio.open_nursery() as nursery:
        parts.prepare("T", b"x")
        nursery.start_soon(parts.check.run)
        await trio.sleep(15 * 60 + 1)
        assert len(parts.producer.checks) == 15
        assert parts.bodies(TRANS_CHECK_MAX_TOPIC) == []
        await trio.sleep(60)
        assert len(parts.producer.checks) == 15
        assert parts.bodies(TRANS_CHECK_MAX_TOPIC) == [b"x"]
        given_up = decode_bytes(parts.records(TRANS_CHECK_MAX_TOPIC)[0].properties)
        assert given_up["TRANSACTION_CHECK_TIMES"] == "15"
        assert parts.halves.next_open() == parts.halves.end() == 16
        assert repr(parts.check) == "<TransactionCheck: 15 asked, 1 given up>"
        nursery.cancel_scope.cancel()


async def test_a_check_without_a_producer_counts_too(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting(MemoryDisk()) as parts:
        parts.send("T", b"x", TRAN_MSG="true", PGROUP="Nobody")
        parts.prepare("T", b"y")
        parts.producer.lost = True
        await trio.sleep(7)
        await parts.check.check()
        assert "no producer of group Nobody is connected to be asked about 1 of" in caplog.text
        assert "cannot be asked" in caplog.text
        assert [
            decode_bytes(found.properties)["TRANSACTION_CHECK_TIMES"] for found in parts.records(HALF_TOPIC)[2:]
        ] == [
            "1",
            "1",
        ]


@pytest.mark.slow
async def test_a_transaction_older_than_the_retention_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        parts.prepare("T", b"x")
        await trio.sleep(72 * 3600 + 1)
        await parts.check.check()
        assert len(parts.producer.checks) == 1, "nobody is given up unasked"
        assert parts.bodies(TRANS_CHECK_MAX_TOPIC) == []
        await trio.sleep(7)
        await parts.check.check()
        assert len(parts.producer.checks) == 1
        assert parts.bodies(TRANS_CHECK_MAX_TOPIC) == [b"x"]


async def test_immunity(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        immune = parts.prepare("T", b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        parts.prepare("T", b"odd", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
        parts.prepare("T", b"plain")
        for _ in range(30):
            await trio.sleep(60)
            await parts.check.check()
        asked = [decode(command.body).body for command in parts.producer.checks]
        assert b"immune" not in asked
        assert asked.count(b"plain") == asked.count(b"odd") == 15
        copy = parts.halves.read(parts.halves.next_open())
        assert copy is not None
        assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(immune.queue_offset)
        assert copy.checks == 0
        await trio.sleep(1800)
        await parts.check.check()
        assert decode(parts.producer.checks[-1].body).body == b"immune"
        parts.roll_back(immune)
        assert parts.halves.next_open() == parts.halves.end()


async def test_a_birth_time_in_the_future_is_checked_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        ours = parts.clock
        parts.clock = lambda: ours() + 3_600_000
        parts.prepare("T", b"x")
        parts.clock = ours
        await trio.sleep(0.1)
        await parts.check.check()
        assert len(parts.producer.checks) == 1


async def test_a_full_disk_ends_one_round_only(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting(MemoryDisk()) as parts, trio.open_nursery() as nursery:
        parts.prepare("T", b"x")
        put = parts.store.put

        def refuse(message: object) -> object:
            raise DiskFull("no room")

        parts.store.put = refuse  # type: ignore[method-assign, assignment]
        nursery.start_soon(parts.check.run)
        await trio.sleep(61)
        assert "until the next round" in caplog.text
        parts.store.put = put  # type: ignore[method-assign]
        await trio.sleep(60)
        assert len(parts.producer.checks) == 1
        nursery.cancel_scope.cancel()


async def test_unreadable_half_messages_are_skipped(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting(MemoryDisk()) as parts:
        broken = parts.prepare("T", b"broken")
        parts.prepare("T", b"whole")
        file = parts.store.log.files.files[0]
        file.buffer[broken.log_offset + 4 : broken.log_offset + 8] = b"\0\0\0\0"
        await trio.sleep(7)
        await parts.check.check()
        assert "skipped" in caplog.text
        assert [decode(command.body).body for command in parts.producer.checks] == [b"whole"]


async def test_many_checks_in_one_round(autojump_clock: trio.testing.MockClock) -> None:
    async with waiting(MemoryDisk()) as parts:
        for number in range(100):
            parts.prepare("T", b"%d" % number)
        await trio.sleep(7)
        await parts.check.check()
        assert len(parts.producer.checks) == 100
        for question in questions(parts):
            parts.commit(as_asked(question))
        assert parts.bodies("T") == [b"%d" % number for number in range(100)]
