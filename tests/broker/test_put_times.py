"""Durations of sends: RocketMQ's counts, and the time they cover."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.put_times import NAMED, PutTimes


def after_a_minute(times: PutTimes) -> PutTimes:
    times.tick(60_000)
    return times


def started() -> PutTimes:
    times = PutTimes()
    times.tick(0)
    return times


def test_a_turn_counts_only_its_new_sends() -> None:
    times = started()
    times.turn(3, 0.4)
    times.turn(3, 700.0)  # a turn without a send
    times.turn(5, 12.0)
    minute = after_a_minute(times).minute()
    assert {name: count for name, count in minute.items() if count} == {"<=0ms": 3, "10~50ms": 2}
    assert times.longest_ms == 12.0


def test_only_the_last_full_minute_is_reported() -> None:
    times = started()
    times.note(7, 3.0)
    assert sum(times.minute().values()) == 0
    assert after_a_minute(times).minute()["0~10ms"] == 7
    times.note(1, 20_000)
    times.tick(70_000)
    assert times.minute()["0~10ms"] == 7
    times.tick(120_000)
    assert {name: count for name, count in times.minute().items() if count} == {"10s~": 1}


@given(st.lists(st.floats(0, 30_000), min_size=1, max_size=200))
def test_every_send_is_counted_once_and_percentiles_are_valid_bounds(durations: list[float]) -> None:
    times = started()
    for duration in durations:
        times.note(1, duration)
    minute = after_a_minute(times).minute()
    assert list(minute) == list(NAMED)
    assert sum(minute.values()) == len(durations) == sum(times.since_start().values())
    for share in (0.5, 0.99, 0.999):
        bound = times.percentile(share)
        assert sum(one <= bound for one in durations) >= share * len(durations)
        assert bound <= max(durations)
    assert times.percentile(0.5) <= times.percentile(0.99) <= times.percentile(0.999)


def test_without_sends_all_times_are_zero() -> None:
    assert after_a_minute(started()).percentile(0.99) == 0.0
