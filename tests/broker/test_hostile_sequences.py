"""No request sequence ends a broker, hangs it, or poisons its next start.

Handlers run with the background tasks, the saved tables and a restart after them (tests/support/hostile_runs.py, which
says how to send a million frames).
"""

from __future__ import annotations

import pytest

from tests.support.hostile_runs import run_broker


@pytest.mark.parametrize(
    ("frames", "seed"),
    [(600, 1), pytest.param(20_000, 2, marks=pytest.mark.slow)],
)
def test_a_broker_survives_a_hostile_peer(frames: int, seed: int) -> None:
    figures = run_broker(frames, seed)
    assert figures.frames == frames
    # Requests reached the handlers, not only their checks.
    assert figures.answers[0] > frames // 10
    assert len(figures.codes) > 50
