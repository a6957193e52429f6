"""Counters, and the rates that RocketMQ's tools request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.statistics import (
    DAY_KEPT,
    MINUTE_KEPT,
    Carried,
    Flow,
    History,
    Number,
    Rate,
    Sample,
    Span,
    Statistics,
)


def tick(statistics: Statistics, now: int, day: int) -> None:
    """The broker's work every ten seconds."""
    for flow in statistics.flows():
        flow.remember(now)
    statistics.tick(now, day)


def carried(flow: Flow, span: Span, number: Number) -> int:
    found = Carried(number)
    found.add(flow, span)
    return found.rate(span).sum


def minute(statistics: Statistics, name: str, key: str) -> Rate | None:
    rates = statistics.rates(name, key)
    return rates["minute"] if rates is not None else None


def test_a_topic_is_the_sum_of_its_queues() -> None:
    statistics = Statistics("C")
    for queue_id in (0, 1):
        statistics.put_flow("T", queue_id)
    tick(statistics, 0, 1)
    for queue_id in (0, 0, 1):
        statistics.put_flow("T", queue_id).add(1, 100)
    statistics.put_flow("T", 1).add(5, 500)
    tick(statistics, 10_000, 1)
    statistics.put_flow("T", 0).add(1, 100)
    tick(statistics, 20_000, 1)
    assert minute(statistics, "TOPIC_PUT_NUMS", "T") == (9, pytest.approx(0.3), 1.8)
    assert minute(statistics, "TOPIC_PUT_SIZE", "T") == (900, pytest.approx(30.0), 180.0)
    assert minute(statistics, "QUEUE_PUT_NUMS", "T@0") == (3, pytest.approx(0.1), 1.0)
    assert minute(statistics, "QUEUE_PUT_SIZE", "T@1") == (600, pytest.approx(20.0), 300.0)


def test_messages_before_the_first_sample_count() -> None:
    statistics = Statistics("C")
    statistics.put_flow("T", 0).add(4, 400)
    tick(statistics, 10_000, 1)
    assert minute(statistics, "TOPIC_PUT_NUMS", "T") == (4, pytest.approx(0.4), 4.0)
    rates = statistics.rates("TOPIC_PUT_NUMS", "T")
    assert rates is not None
    assert rates["day"].sum == rates["hour"].sum == 0


def test_statistics_of_pulls_and_sent_back_messages() -> None:
    statistics = Statistics("C")
    flow = statistics.pull_flow("G", "T", 3)
    statistics.count_sent_back("G", "T")
    tick(statistics, 0, 1)
    flow.add(32, 3200)
    flow.milliseconds += 7
    statistics.fetched.add(32, 3200)
    statistics.count_sent_back("G", "T")
    tick(statistics, 10_000, 1)
    for name, key, value in [
        ("GROUP_GET_NUMS", "T@G", 32),
        ("GROUP_GET_SIZE", "T@G", 3200),
        ("QUEUE_GET_NUMS", "T@3@G", 32),
        ("QUEUE_GET_SIZE", "T@3@G", 3200),
        ("GROUP_GET_LATENCY", "3@T@G", 7),
        ("BROKER_GET_NUMS", "C", 32),
        ("BROKER_PUT_NUMS", "C", 0),
        ("SNDBCK_PUT_NUMS", "T@G", 2),
    ]:
        found = minute(statistics, name, key)
        assert found is not None, name
        assert found.sum == value, name
    assert statistics.pull_flow("G", "T", 3) is flow


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NO_SUCH_STATS", "T"),
        ("TOPIC_PUT_NUMS", "U"),
        ("QUEUE_PUT_NUMS", "T@9"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("QUEUE_GET_NUMS", "T"),
        ("GROUP_GET_LATENCY", "T@G"),
        ("BROKER_PUT_NUMS", "another"),
    ],
)
def test_an_unknown_statistic_is_none(name: str, key: str) -> None:
    statistics = Statistics("C")
    statistics.put_flow("T", 0)
    tick(statistics, 0, 1)
    assert statistics.rates(name, key) is None


def test_a_statistic_starts_with_a_message_and_its_rate_with_a_sample() -> None:
    statistics = Statistics("C")
    assert statistics.rates("TOPIC_PUT_NUMS", "T") is None
    statistics.put_flow("T", 0).add(1, 1)
    assert minute(statistics, "TOPIC_PUT_NUMS", "T") == (0, 0.0, 0.0)
    tick(statistics, 0, 1)
    assert minute(statistics, "TOPIC_PUT_NUMS", "T") == (1, 0.1, 1.0)


def test_spans_cover_a_minute_an_hour_and_a_day() -> None:
    history = History()
    for tick in range(0, 2 * 86_400_000, 10_000):
        history.add(Sample(tick, tick, tick, tick, 0))
    assert len(history.minute) == MINUTE_KEPT
    assert history.minute[-1].time - history.minute[0].time == 60_000
    assert history.hour[-1].time - history.hour[0].time == 3_600_000
    assert len(history.day) == DAY_KEPT
    assert history.day[-1].time - history.day[0].time == 86_400_000


def test_forgotten_topics_and_groups_leave_the_totals() -> None:
    statistics = Statistics("C")
    statistics.put_flow("T", 0).add(3, 30)
    statistics.put.add(3, 30)
    statistics.put_flow("U", 0)
    statistics.pull_flow("G", "T", 0).add(2, 20)
    statistics.pull_flow("H", "U", 0).add(1, 10)
    statistics.count_sent_back("G", "T")
    statistics.count_sent_back("H", "U")
    assert list(statistics.forgetting(topic="T"))
    assert list(statistics.forgetting(group="H"))
    tick(statistics, 0, 1)
    assert statistics.put.messages == 3
    for name, key in [
        ("TOPIC_PUT_NUMS", "T"),
        ("GROUP_GET_NUMS", "T@G"),
        ("GROUP_GET_NUMS", "U@H"),
        ("SNDBCK_PUT_NUMS", "T@G"),
        ("SNDBCK_PUT_NUMS", "U@H"),
    ]:
        assert statistics.rates(name, key) is None, name
    assert statistics.rates("TOPIC_PUT_NUMS", "U") is not None


def test_rates_over_seconds() -> None:
    statistics = Statistics("C")
    assert statistics.per_second("put", 10, 0) == 0.0
    for second in range(700):
        if second % 10 == 0:
            tick(statistics, second * 1000, 1)
        statistics.put.add(2 if second >= 690 else 1, 1)
    assert statistics.per_second("put", 10, 700_000) == pytest.approx(2.0)
    assert statistics.per_second("put", 60, 700_000) == pytest.approx(70 / 60)
    assert statistics.per_second("put", 3600, 700_000) == pytest.approx(620 / 610)


def test_the_day_turns() -> None:
    statistics = Statistics("C")
    tick(statistics, 0, 7)
    statistics.put.add(1, 1)
    tick(statistics, 10_000, 7)
    assert statistics.today.put_this_morning == 0
    tick(statistics, 20_000, 8)
    statistics.put.add(1, 1)
    statistics.fetched.add(1, 1)
    tick(statistics, 30_000, 9)
    today = statistics.today
    assert (today.put_yesterday_morning, today.put_this_morning) == (1, 2)
    assert (today.get_yesterday_morning, today.get_this_morning) == (0, 1)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1000)), max_size=30))
def test_a_rate_covers_the_time_between_its_samples(steps: list[tuple[int, int]]) -> None:
    flow = Flow()
    flow.remember(0)
    for n, (messages, size) in enumerate(steps, 1):
        flow.add(messages, size)
        flow.remember(n * 10_000)
    kept = steps[-(MINUTE_KEPT - 1) :]
    assert carried(flow, "minute", "messages") == sum(messages for messages, _ in kept)
    assert carried(flow, "minute", "bytes") == sum(size for _, size in kept)
    assert carried(flow, "day", "bytes") == 0
