from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.sending.latency_faults import LatencyFaults
from rocketlet.client.sending.queue_selection import by_hash, choose
from rocketlet.common.message import Message, MessageQueue

A = [MessageQueue("T", "a", i) for i in range(2)]
B = [MessageQueue("T", "b", i) for i in range(2)]


def test_sends_rotate_over_all_queues() -> None:
    assert [choose(A + B, turn) for turn in range(5)] == [*A, *B, A[0]]


@given(st.integers(0, 10_000))
def test_a_retry_avoids_the_last_broker(turn: int) -> None:
    assert choose(A + B, turn, avoid="a").broker_name == "b"


def test_the_only_broker_is_tried_again() -> None:
    assert choose(A, 3, avoid="a") == A[1]


def test_a_faulty_broker_is_skipped_until_its_penalty_ends() -> None:
    faults = LatencyFaults()
    faults.failed("a", 0, now=0)
    assert {choose(A + B, turn, faults=faults, now=1).broker_name for turn in range(8)} == {"b"}
    assert {choose(A + B, turn, faults=faults, now=600_000).broker_name for turn in range(8)} == {"a", "b"}


def test_if_all_are_faulty_one_of_the_better_half_is_taken() -> None:
    faults = LatencyFaults()
    faults.answered("a", 20_000, now=0)
    faults.answered("b", 600, now=0)
    assert {choose(A + B, turn, faults=faults, now=1).broker_name for turn in range(8)} == {"b"}


def test_a_faulty_broker_without_queues_is_forgotten() -> None:
    faults = LatencyFaults()
    faults.answered("gone", 600, now=0)
    faults.failed("a", 3000, now=0)
    assert choose(A, 0, faults=faults, now=1) in A
    assert {faults.least_bad(now=1) for _ in range(4)} == {"a"}


def test_a_key_maps_to_the_queue_java_chooses() -> None:
    message = Message("T", b"x")
    queues = A + B
    # "order-7".hashCode() is -1207111304, and abs(-1207111304 % 3) in Java is 2 where Python's own remainder is 1.
    assert by_hash(queues[:3], message, "order-7") == queues[2]
    assert by_hash(queues, message, 6) == queues[2]
    assert by_hash(queues, message, -3) == queues[3]
