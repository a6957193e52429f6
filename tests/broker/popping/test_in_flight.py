"""The table of messages in flight, compared with a dictionary."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketlet.broker.popping import in_flight
from rocketlet.broker.popping.in_flight import NEVER, Entry, InFlight, in_order

SIZES = {"_BLOCK": 8, "_SHORTEST_RUN": 2, "_MAX_RUNS": 3}
usual_sizes = {name: getattr(in_flight, name) for name in SIZES}


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        for name, size in SIZES.items():
            setattr(in_flight, name, size)
        self.table = InFlight()
        self.model: dict[int, Entry] = {}
        self.rows: list[range] = []

    def teardown(self) -> None:
        for name, size in usual_sizes.items():
            setattr(in_flight, name, size)

    @rule(count=st.integers(1, 20), due=st.integers(0, 3))
    def deliver(self, count: int, due: int) -> None:
        offsets = range(self.table.next, self.table.next + count)
        self.table.append(offsets, due * 15, due)
        self.model |= {offset: Entry(offset, due * 15, due, 1, 0) for offset in offsets}
        self.rows.append(offsets)

    @rule(data=st.data(), cut=st.integers(-2, 2))
    def done_row(self, data: st.DataObject, cut: int) -> None:
        if self.rows:
            row = data.draw(st.sampled_from(self.rows))
            offsets = row[max(cut, 0) : min(len(row) + cut, len(row))]
            assert list(self.table.done_all(offsets)) == [
                offset for offset in offsets if self.model.pop(offset, None) is not None
            ]

    @rule(count=st.integers(1, 20), due=st.integers(0, 50), times=st.integers(0, 3))
    def append(self, count: int, due: int, times: int) -> None:
        for offset in range(self.table.next, self.table.next + count):
            self.put(offset, due, times)

    @rule(offset=st.integers(0, 100), due=st.integers(0, 50), times=st.integers(0, 3))
    def put(self, offset: int, due: int, times: int) -> None:
        entry = Entry(offset, due, due + 1, times, offset % 3)
        self.table.put(entry)
        self.model[offset] = entry

    @rule(offsets=st.lists(st.integers(0, 120), max_size=30))
    def done(self, offsets: list[int]) -> None:
        for offset in offsets:
            assert self.table.done(offset) == (self.model.pop(offset, None) is not None)

    @rule(first=st.integers(0, 100), count=st.integers(1, 12), step=st.integers(1, 2))
    def done_all(self, first: int, count: int, step: int) -> None:
        offsets = list(range(first, first + count * step, step))
        assert list(self.table.done_all(offsets)) == [
            offset for offset in offsets if self.model.pop(offset, None) is not None
        ]

    @rule(now=st.integers(0, 60), most=st.integers(1, 10))
    def due(self, now: int, most: int) -> None:
        expected = [entry for _, entry in sorted(self.model.items()) if entry.due <= now]
        assert self.table.due(now, most) == expected[:most]
        assert self.table.dead(now, 2, most) == [entry for entry in expected if entry.times >= 2][:most]
        later = min((entry.due for entry in self.model.values() if entry.due > now), default=NEVER)
        assert now < self.table.soonest_after(now) <= later

    @rule(begin=st.integers(0, 60), end=st.integers(60, 120))
    def keep(self, begin: int, end: int) -> None:
        gone = self.table.keep_between(begin, end)
        kept = {offset: entry for offset, entry in self.model.items() if begin <= offset < end}
        assert gone == len(self.model) - len(kept)
        self.model = kept

    @invariant()
    def they_agree(self) -> None:
        assert len(self.table) == len(self.model)
        assert self.table.floor == min(self.model, default=self.table.next)

    @rule()
    def look(self) -> None:
        expected = [entry for _, entry in sorted(self.model.items())]
        assert list(self.table) == expected
        assert [entry for piece in self.table.pieces() for entry in piece] == expected
        counts = self.table.counts(25)
        assert counts.invisible + counts.due + counts.held >= len(expected)
        for offset in range(0, 120, 7):
            assert self.table.get(offset) == self.model.get(offset)


TestInFlight = Model.TestCase


def test_a_message_group_in_flight_waits() -> None:
    table = [Entry(0, 100, 1, 1, 7), Entry(1, 0, 0, 0, 7), Entry(2, 40, 1, 1, 8), Entry(3, 0, 0, 0, 8)]
    found = in_order(table, 50, 10)
    assert [entry.offset for entry in found.entries] == [2, 3]
    assert (found.busy, found.soonest) == ({7}, 100)
