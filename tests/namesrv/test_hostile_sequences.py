"""No request sequence ends a name server, hangs it, or poisons its next start (tests/support/hostile_runs.py)."""

from __future__ import annotations

import pytest

from tests.support.hostile_runs import run_namesrv


@pytest.mark.parametrize(
    ("frames", "seed"),
    [(1_000, 1), pytest.param(20_000, 2, marks=pytest.mark.slow)],
)
def test_a_name_server_survives_a_hostile_peer(frames: int, seed: int) -> None:
    figures = run_namesrv(frames, seed)
    assert figures.frames == frames
    assert figures.answers[0] > frames // 10
    assert len(figures.codes) > 20
