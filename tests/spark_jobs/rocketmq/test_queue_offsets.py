from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message import MessageQueue
from rocketlet.spark_jobs.rocketmq.queue_offsets import (
    EARLIEST,
    LATEST,
    BadOffsets,
    OffsetRange,
    Offsets,
    cut,
    from_state,
    limited,
    parse,
    ranges_between,
    to_state,
)

QUEUES = st.builds(
    MessageQueue, st.sampled_from(["A", "B%r"]), st.sampled_from(["broker-a", "b:c", "ü"]), st.integers(0, 2000)
)


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue("A", "broker-a", number)


@given(st.dictionaries(QUEUES, st.integers(0, (1 << 63) - 1)))
def test_a_checkpoint_round_trips(offsets: Offsets) -> None:
    assert from_state(json.loads(json.dumps(to_state(offsets)))) == offsets


def test_earliest_and_latest_may_be_written_as_numbers() -> None:
    found = parse('{"A": {"broker-a:0": -2, "broker-a:1": -1, "broker-a:2": 7}}')
    assert found == {queue(0): EARLIEST, queue(1): LATEST, queue(2): 7}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "are not JSON"),
        ("[]", "an object of topics"),
        ('{"A": 1}', "offsets of topic A: an object of queues"),
        ('{"A": {"broker-a": 1}}', "'broker-a' is no queue; write broker-a:0"),
        ('{"A": {":1": 1}}', "':1' is no queue"),
        ('{"A": {"b:²": 1}}', "is no queue"),
        ('{"A": {"b:0": -3}}', "-3 of queue b:0 is no offset"),
        ('{"A": {"b:0": true}}', "True of queue b:0 is no offset"),
        ('{"A": {"b:0": 9223372036854775808}}', "is no offset"),
        ('{"A": {"b:0": "1"}}', "is no offset"),
    ],
)
def test_offsets_that_cannot_be_read_are_named(text: str, words: str) -> None:
    with pytest.raises(BadOffsets) as failed:
        parse(text)
    assert words in str(failed.value)


def test_a_checkpoint_cannot_say_earliest() -> None:
    with pytest.raises(BadOffsets):
        from_state({"A": {"b:0": -2}})


BACKLOGS = st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8)


@given(BACKLOGS, st.integers(1, 3000))
def test_a_limit_is_used_up_and_not_exceeded(backlogs: dict[int, tuple[int, int]], most: int) -> None:
    start = {queue(n): begin for n, (begin, _) in backlogs.items()}
    end = {queue(n): begin + count for n, (begin, count) in backlogs.items()}
    found = limited(start, end, most)
    assert found.keys() == end.keys()
    assert all(start[one] <= found[one] <= end[one] for one in end)
    taken = sum(found[one] - start[one] for one in end)
    assert taken == min(most, sum(end[one] - start[one] for one in end))


def test_a_long_queue_does_not_hold_up_a_short_one() -> None:
    found = limited({queue(0): 0, queue(1): 5}, {queue(0): 1_000_000, queue(1): 6}, 100)
    assert found == {queue(0): 99, queue(1): 6}


@given(BACKLOGS, st.integers(1, 40), st.integers(1, 400))
def test_pieces_cover_the_ranges_once_and_in_order(backlogs: dict[int, tuple[int, int]], tasks: int, most: int) -> None:
    start = {queue(n): begin for n, (begin, _) in backlogs.items()}
    end = {queue(n): begin + count for n, (begin, count) in backlogs.items()}
    ranges = ranges_between(start, end)
    pieces = cut(ranges, tasks, most)
    assert all(0 < len(piece) <= most for piece in pieces)
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].queue == piece.queue and joined[-1].end == piece.begin:
            joined[-1] = OffsetRange(piece.queue, joined[-1].begin, piece.end)
        else:
            joined.append(piece)
    assert joined == ranges


def test_a_backlog_in_one_queue_is_divided_among_the_wanted_tasks() -> None:
    assert len(cut([OffsetRange(queue(), 0, 1000)], 8, 1_000_000)) == 8
