"""What was deleted, for slaves: the latest of each name, as many as are kept, and found without a look at all."""

from __future__ import annotations

import pytest

from rocketlet.broker import tombstones as module
from rocketlet.broker.tombstones import GROUP, TOPIC, Tombstone, Tombstones


def test_the_latest_of_a_name_counts() -> None:
    stones = Tombstones()
    for kind, name, at in ((TOPIC, "T", 1), (GROUP, "T", 0), (TOPIC, "U", 2), (TOPIC, "T", 3)):
        stones.add(kind, name, at)
    assert [(one.number, one.kind, one.name, one.log_offset) for one in stones.after(0)] == [
        (2, GROUP, "T", 0),
        (3, TOPIC, "U", 2),
        (4, TOPIC, "T", 3),
    ]
    assert [one.number for one in stones.after(3)] == [4]
    assert stones.has(Tombstone(9, TOPIC, "T", 3))
    assert not stones.has(Tombstone(1, TOPIC, "T", 1))
    again = Tombstones()
    again.load(stones.to_body())
    assert (again.after(0), again.last) == (stones.after(0), stones.last)


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    stones = Tombstones()
    for number in range(5):
        stones.add(TOPIC, f"T{number}", number)
    assert [one.name for one in stones.after(0)] == ["T2", "T3", "T4"]
    assert (len(stones), stones.last) == (3, 5)


@pytest.mark.parametrize("body", [None, [], {}, {"gone": [], "next": "x"}, {"gone": [[1]], "next": 2}])
def test_a_file_that_makes_no_sense_is_left_out(body: object) -> None:
    stones = Tombstones()
    stones.load(body)
    assert (len(stones), stones.last) == (0, 0)
