"""The fakes and builders used by other tests."""

from __future__ import annotations

import trio
import trio.testing

from rocketlet.common.clock import TrioWallClock, WallClock
from tests.support import order
from tests.support.builders import log_of, received, record
from tests.support.records import decode_all
from tests.support.virtual_time import START_MS, ManualClock


async def test_waiting_advances_wall_time_and_takes_none(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    assert wall_clock() == START_MS
    before = trio.current_time()
    for _ in range(16):
        await trio.sleep(7200)
    assert wall_clock() == START_MS + 16 * 7_200_000
    assert trio.current_time() - before == 16 * 7200


def test_a_manual_clock_stands_still_until_advanced() -> None:
    clock = ManualClock()
    as_seen_by_others: WallClock = clock
    assert as_seen_by_others() == START_MS
    clock.advance(hours=2, seconds=1, ms=5)
    assert as_seen_by_others() == START_MS + 7_201_005
    clock.advance(ms=-10)
    assert as_seen_by_others() == START_MS + 7_200_995


def test_records_are_built_with_their_log_offset() -> None:
    log = log_of(record(0), record(1, topic="Other", body=b"x" * 100), record(2), start=500)
    found = decode_all(log)
    assert [one.queue_offset for one in found] == [0, 1, 2]
    assert [one.topic for one in found] == ["T", "Other", "T"]
    assert [one.log_offset for one in found] == [500, 500 + found[0].size, 500 + found[0].size + found[1].size]


def test_received_messages_are_complete() -> None:
    message = received(7, topic="Other")
    assert (message.topic, message.queue_offset, message.body) == ("Other", 7, b"body 7")


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in order.LONGEST if not (order.TESTS / name).exists()] == []
