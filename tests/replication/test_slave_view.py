"""A slave can acknowledge only what it was sent on this connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.replication.slave_view import LogSpan, NotServed, SlaveView, start_for

LOG = LogSpan(begin=1000, end=5000, last_file=4000)


def test_an_empty_slave_gets_the_whole_log_or_its_last_file() -> None:
    assert start_for(0, LOG, last_file_only=False) == 1000
    assert start_for(0, LOG, last_file_only=True) == 4000


@pytest.mark.parametrize("asked", [1000, 1234, 5000])
def test_a_slave_continues_at_its_end(asked: int) -> None:
    assert start_for(asked, LOG, last_file_only=False) == asked


@pytest.mark.parametrize("asked", [-1, -(1 << 63), 1, 999, 5001, 1 << 62])
def test_a_slave_that_does_not_continue_this_log_gets_nothing(asked: int) -> None:
    with pytest.raises(NotServed):
        start_for(asked, LOG, last_file_only=False)


REPORTS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 400))
STEPS = st.lists(st.one_of(st.tuples(st.just("send"), st.integers(1, 50)), st.tuples(st.just("report"), REPORTS)))


@given(steps=STEPS, asked=st.sampled_from([0, 100]))
def test_only_bytes_sent_on_this_connection_are_ever_confirmed(steps: list[tuple[str, int]], asked: int) -> None:
    start = 100
    view, sent, acked = SlaveView(asked, start, 0.0), start, asked
    for what, number in steps:
        if what == "send":
            view.sending(number, 0.0)
            sent += number
        elif view.report(number, 0.0):
            assert not acked <= number <= sent
        else:
            acked = number
        assert view.confirmed in (0, acked)
        assert not start >= view.confirmed > 0
        assert view.confirmed <= sent


def test_overdue_acknowledgements_are_tracked() -> None:
    view = SlaveView(100, 100, 0.0)
    assert view.stalled_for(50.0) == 0
    view.sending(10, 60.0)
    assert view.stalled_for(63.0) == 3
    view.sending(10, 64.0)
    assert view.stalled_for(65.0) == 5
    view.report(110, 66.0)
    assert view.stalled_for(67.0) == 1
    view.report(120, 68.0)
    assert view.stalled_for(90.0) == 0
    view.sending(5, 90.0)
    assert view.stalled_for(91.0) == 1
