"""Prefetched pulls: whatever a broker returns, every offset is requested in turn, and no wrong answer is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.spark_jobs.rocketmq.broker_reader import Pulled
from rocketlet.spark_jobs.rocketmq.pulled_batches import Pulls


def asking(gives: Callable[[int], int], asked: list[int]) -> Callable[[int], Future[Pulled]]:
    """A broker whose answer at an offset advances by a given number."""

    def ask(offset: int) -> Future[Pulled]:
        asked.append(offset)
        future: Future[Pulled] = Future()
        future.set_result(Pulled(ResponseCode.SUCCESS, offset + gives(offset), 0, 1 << 40, b"%d" % offset))
        return future

    return ask


@given(st.lists(st.integers(1, 3), min_size=1, max_size=60), st.integers(1, 200))
def test_each_answer_belongs_to_the_wanted_offset(steps: list[int], end: int) -> None:
    asked: list[int] = []
    pulls, at, seen = Pulls(asking(lambda offset: steps[offset % len(steps)], asked), end), 0, []
    while at < end:
        pulled = pulls.at(at)
        assert bytes(pulled.records) == b"%d" % at
        seen.append(at)
        pulls.guess(at, pulled.next_offset)
        at = pulled.next_offset
    assert set(seen) <= set(asked)
    assert max(asked) < end


def test_pulls_are_prefetched_and_none_is_repeated() -> None:
    asked: list[int] = []
    pulls = Pulls(asking(lambda _: 32, asked), 320)
    for at in range(0, 320, 32):
        pulls.at(at)
        pulls.guess(at, at + 32)
        assert len(asked) <= at // 32 + 1 + 4
    assert asked == list(range(0, 320, 32))


def test_an_answer_without_progress_is_requested_again() -> None:
    asked: list[int] = []
    pulls = Pulls(asking(lambda _: 0, asked), 10)
    for _ in range(3):
        pulls.at(5)
        pulls.guess(5, 5)
    assert set(asked) == {5}
    assert len(asked) <= 4
