"""Bit maps of SQL92 groups: shapes, positions and bits equal RocketMQ's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.filter.bloom import Bloom, is_hit

BLOOM = Bloom.for_groups(32, 20)


def test_the_default_shape() -> None:
    assert (BLOOM.hashes, BLOOM.bits, BLOOM.size) == (3, 112, 14)


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [
        ("GroupA", "TopicTest", (105, 17, 70)),
        ("g", "t", (22, 87, 58)),
        ("CG_sql1", "TopicS", (13, 85, 45)),
        ("CG_sql0", "TopicS", (80, 1, 83)),
    ],
)
def test_positions_match_those_recorded(group: str, topic: str, positions: tuple[int, ...]) -> None:
    assert BLOOM.positions(group, topic) == positions


def test_bits_match_those_recorded() -> None:
    assert BLOOM.map_of((105, 17, 70)).hex() == "0000020000000000400000000002"


@given(st.lists(st.text(min_size=1), max_size=20), st.text(min_size=1))
def test_an_added_group_is_always_found(groups: list[str], topic: str) -> None:
    positions = [BLOOM.positions(group, topic) for group in groups]
    bits = BLOOM.map_of(position for of_group in positions for position in of_group)
    assert all(is_hit(of_group, bits) for of_group in positions)


def test_false_positives_stay_within_the_promised_rate() -> None:
    groups = [f"group-{number}" for number in range(32)]
    bits = BLOOM.map_of(position for group in groups for position in BLOOM.positions(group, "t"))
    wrong = sum(is_hit(BLOOM.positions(f"other-{number}", "t"), bits) for number in range(2000))
    assert wrong / 2000 < 0.25
