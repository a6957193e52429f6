from __future__ import annotations

from itertools import islice

from rocketlet.common.retry_pauses import retry_pauses


def test_every_second_at_first_then_slower() -> None:
    pauses = list(islice(retry_pauses(5.0), 20))
    assert pauses[:10] == [1.0] * 10
    assert pauses[10:14] == [1.5, 2.25, 3.375, 5.0]
    assert set(pauses[14:]) == {5.0}


def test_no_pause_exceeds_the_maximum() -> None:
    assert set(islice(retry_pauses(0.25), 20)) == {0.25}
