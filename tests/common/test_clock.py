"""Wall time, real and virtual."""

from __future__ import annotations

import time

import trio
import trio.testing

from rocketlet.common.clock import TrioWallClock, WallClock, system_clock

START = 1_700_000_000_000


def test_the_system_clock_is_the_machines_time_in_milliseconds() -> None:
    before = int(time.time() * 1000)
    now = system_clock()
    assert before <= now <= int(time.time() * 1000) + 1


async def test_wall_time_follows_the_runs_clock(autojump_clock: trio.testing.MockClock) -> None:
    clock: WallClock = TrioWallClock(START)
    assert clock() == START
    await trio.sleep(7200)
    assert clock() == START + 7_200_000


async def test_whole_milliseconds_survive_float_seconds(autojump_clock: trio.testing.MockClock) -> None:
    clock = TrioWallClock(START)
    for _ in range(1000):
        await trio.sleep(0.001)
    assert clock() == START + 1000


async def test_wall_time_can_be_read_in_a_worker_thread() -> None:
    clock = TrioWallClock(START)
    assert await trio.to_thread.run_sync(clock) >= START


def test_wall_time_can_follow_a_clock_outside_any_run() -> None:
    mock = trio.testing.MockClock()
    clock = TrioWallClock(START, mock)
    mock.jump(1.5)
    assert clock() == START + 1500
    assert repr(clock) == f"<TrioWallClock at {START + 1500} ms, 1500 ms after its start>"
