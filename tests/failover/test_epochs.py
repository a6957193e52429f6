"""Where two logs diverge, found from their epochs only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.failover.epochs import MAX_EPOCHS, BadEpochs, Epochs, common_end


def test_records_before_the_first_election_belong_to_its_epoch() -> None:
    assert Epochs().with_epoch(3, 500).entries == ((3, 0),)


def test_an_empty_epoch_is_replaced() -> None:
    assert Epochs([(1, 0), (2, 100)]).with_epoch(3, 100).entries == ((1, 0), (3, 100))
    assert Epochs([(1, 0)]).with_epoch(2, 0).entries == ((2, 0),)


def test_logs_diverge_where_the_first_leaves_the_last_common_epoch() -> None:
    old_leader, new_leader = Epochs([(1, 0), (2, 100)]), Epochs([(1, 0), (2, 100), (3, 250)])
    assert common_end(old_leader, 300, new_leader, 900) == 250
    assert common_end(old_leader, 240, new_leader, 900) == 240
    assert common_end(Epochs([(1, 0)]), 120, new_leader, 900) == 100
    assert common_end(Epochs([(1, 0), (2, 100)]), 180, Epochs([(1, 0), (3, 90)]), 400) == 90


def test_adopted_epochs_not_reached_yet_guarantee_nothing() -> None:
    assert common_end(Epochs([(1, 0), (3, 200)]), 150, Epochs([(1, 0), (3, 200)]), 400) == 150
    assert common_end(Epochs([(1, 0), (3, 200)]), 150, Epochs([(1, 0), (4, 120)]), 400) == 120


def test_logs_without_a_common_epoch_have_nothing_in_common() -> None:
    assert common_end(Epochs([(1, 0)]), 50, Epochs([(2, 0)]), 80) == 0
    assert common_end(Epochs(), 50, Epochs([(2, 0)]), 80) == 0


@pytest.mark.parametrize("entries", [[(0, 0)], [(1, 5)], [(2, 0), (2, 5)], [(2, 0), (3, 0)], [(1, 0), (2, -5)]])
def test_an_invalid_list_of_epochs_is_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(BadEpochs):
        Epochs(entries)


def test_very_many_elections_are_bounded() -> None:
    epochs = Epochs()
    for number in range(1, MAX_EPOCHS + 50):
        epochs = epochs.with_epoch(number, number * 10)
    assert len(epochs.entries) == MAX_EPOCHS
    assert epochs.entries[0] == (1, 0)


# One history per group: a tree of logs, extended by leaders that begin where some log was cut.
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5)), max_size=30))
def test_the_common_end_is_common(steps: list[tuple[int, int, int]]) -> None:
    logs: list[list[int]] = [[], [], []]  # for each member: the epoch in which each unit was written
    epochs = [Epochs(), Epochs(), Epochs()]
    for number, (leader, follower, written) in enumerate(steps, 1):
        epochs[leader] = epochs[leader].with_epoch(number, len(logs[leader]))
        logs[leader] += [number] * written
        if follower != leader:
            end = common_end(epochs[follower], len(logs[follower]), epochs[leader], len(logs[leader]))
            assert logs[follower][:end] == logs[leader][:end]
            logs[follower] = logs[leader][: max(end, len(logs[leader]) - written // 2)]
            epochs[follower] = epochs[leader]
