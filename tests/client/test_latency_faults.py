from __future__ import annotations

import pytest

from rocketlet.client.sending.latency_faults import LatencyFaults


@pytest.mark.parametrize(
    ("latency", "avoided"),
    [
        (0, 0),
        (49, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1000, 60_000),
        (3000, 180_000),
        (15_000, 600_000),
    ],
)
def test_the_table_turns_latency_into_avoidance(latency: float, avoided: int) -> None:
    assert LatencyFaults().avoidance_ms(latency) == avoided


def test_a_slow_broker_is_avoided_for_its_penalty() -> None:
    faults = LatencyFaults()
    faults.answered("a", 700, now=1000)
    assert not faults.available("a", 30_999)
    assert faults.available("a", 31_000)
    assert faults.available("unknown", 0)


def test_a_failed_attempt_counts_as_thirty_seconds_of_latency() -> None:
    faults = LatencyFaults()
    faults.failed("a", 3, now=0)
    assert not faults.available("a", 599_999)
    assert faults.available("a", 600_000)


def test_a_fast_answer_clears_a_fault() -> None:
    faults = LatencyFaults()
    faults.failed("a", 3, now=0)
    faults.answered("a", 10, now=1)
    assert faults.available("a", 1)


def test_the_least_bad_alternates_in_the_better_half() -> None:
    faults = LatencyFaults()
    for name, latency in [("a", 5000), ("b", 600), ("c", 20_000), ("d", 700)]:
        faults.answered(name, latency, now=0)
    assert {faults.least_bad(1) for _ in range(6)} == {"b", "d"}
    assert LatencyFaults().least_bad(0) is None


def test_a_table_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="one avoidance for each latency"):
        LatencyFaults([1, 2], [3])
