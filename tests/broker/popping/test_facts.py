"""Facts about pops: written facts are read back, and nothing else is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.popping import facts
from rocketlet.broker.popping.facts import Fact, FactError, Key, Kind
from rocketlet.broker.popping.in_flight import Entry, InFlight

long = st.integers(0, (1 << 63) - 1)
names = st.text("abc%|_-é", min_size=1, max_size=10)
keys = st.builds(Key, names, names, st.integers(0, (1 << 31) - 1))
offsets = st.lists(long, max_size=100)
entries = st.lists(st.builds(Entry, long, long, long, st.integers(0, 0xFFFF), long), max_size=100)
PAGE = Path(__file__).parents[3] / "docs" / "formats" / "state_log.md"


@given(keys, long, long, offsets, entries, st.none() | names)
def test_written_facts_are_read_back(
    key: Key, one: int, other: int, some: list[int], table: list[Entry], attempt: str | None
) -> None:
    given = [entry._replace(due=other if entry.times else 0, popped=one if entry.times else 0) for entry in table]
    data = b"".join([
        facts.start(key, one), facts.popped(key, one, other, 7, given, attempt), facts.done(key, some),
        facts.changed(key, one, other, some), facts.dropped(key), *([facts.part(key, table)] if table else []),
    ])  # fmt: skip
    assert list(facts.read(data)) == [
        Fact(Kind.START, key, next=one),
        Fact(Kind.POPPED, key, 7, one, other, entries=given, attempt=attempt or "", order=attempt is not None),
        Fact(Kind.DONE, key, offsets=some),
        Fact(Kind.CHANGED, key, pop_time=one, due=other, offsets=some),
        Fact(Kind.DROPPED, key),
        *([Fact(Kind.ENTRIES, key, entries=table)] if table else []),
    ]


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_the_documented_error(data: bytes) -> None:
    try:
        for fact in facts.read(data):
            facts.apply(fact, InFlight())
    except FactError:
        pass


@given(keys, offsets, st.data())
def test_a_truncated_fact_is_rejected(key: Key, some: list[int], data: st.DataObject) -> None:
    whole = facts.done(key, some)
    with pytest.raises(FactError):
        list(facts.read(whole[: data.draw(st.integers(1, len(whole) - 1))]))


def test_the_documented_example_holds() -> None:
    text = re.search(r"Example, two messages.*?: `([0-9a-f\s]+)`", PAGE.read_text(), re.DOTALL)
    assert text is not None
    raw = bytes.fromhex(text[1])
    assert raw == facts.done(Key("G", "T", 3), [17, 18])
