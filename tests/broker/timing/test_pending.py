"""The table of waiting messages, compared with a sorted list."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketlet.broker.timing import pending as pending_module
from rocketlet.broker.timing.pending import NEVER, Pending

LARGE = pending_module._LARGE
dues = st.one_of(st.integers(0, 2_000), st.integers(0, 1_000_000), st.sampled_from([255, 256, 65_535, 65_536, 131_072]))


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        pending_module._LARGE = 8  # type: ignore[misc]
        self.pending = Pending()
        self.model: set[tuple[int, int]] = set()
        self.places = 0
        self.now = 0

    def teardown(self) -> None:
        pending_module._LARGE = LARGE  # type: ignore[misc]

    @rule(due=dues, count=st.integers(1, 30))
    def add(self, due: int, count: int) -> None:
        for _ in range(count):
            self.pending.add(due, self.places)
            self.model.add((due, self.places))
            self.places += 1

    @rule(step=st.integers(-300, 200_000), most=st.integers(1, 5))
    def take(self, step: int, most: int) -> None:
        self.now = max(self.now + step, 0)
        expected = sorted(pair for pair in self.model if pair[0] <= self.now)[:most]
        assert self.pending.take(self.now, most) == expected
        self.model -= set(expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        due, place = data.draw(st.sampled_from(sorted(self.model)))
        assert place in self.pending.at(due, 1000)
        assert self.pending.has(due, place)
        self.pending.remove(due, place)
        assert not self.pending.has(due, place)
        self.model.discard((due, place))

    @rule()
    def forget_and_build_again(self) -> None:
        rows = self.pending.rows()
        self.pending = Pending()
        self.pending.add_many(rows)

    @invariant()
    def they_agree(self) -> None:
        assert len(self.pending) == len(self.model)
        assert set(map(tuple, self.pending.rows().tolist())) == self.model
        assert self.pending.next_due() <= min((due for due, _ in self.model), default=NEVER)


TestPending = Model.TestCase


@given(st.lists(st.tuples(dues, st.integers(0, 1 << 40)), unique_by=lambda pair: pair[1]))
def test_all_messages_come_out_in_order(pairs: list[tuple[int, int]]) -> None:
    pending = Pending()
    pending.add_many(numpy.array(pairs, numpy.int64).reshape(-1, 2))
    taken = []
    while some := pending.take(2_000_000, 7):
        taken += some
    assert sorted(taken) == sorted(pairs)
    assert [due for due, _ in taken] == sorted(due for due, _ in pairs)
