"""Shared by all tests: where the recorded vectors are, virtual time, and hypothesis profiles."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio.testing
from hypothesis import HealthCheck, settings

from rocketlet.common.clock import TrioWallClock
from tests.support.virtual_time import START_MS

VECTORS = Path(__file__).parent / "vectors"

# Examples are derived from the test, so that a run repeats; the thorough profile is for the slow suite.
settings.register_profile("fast", max_examples=40, deadline=None, derandomize=True)
settings.register_profile(
    "thorough",
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The recorded frames, stores and tables of a running RocketMQ 4.9.8; see tests/vectors/README.md."""
    return VECTORS


@pytest.fixture
def wall_clock(request: pytest.FixtureRequest, autojump_clock: trio.testing.MockClock) -> TrioWallClock:
    """Wall time that keeps step with trio's; both leap as soon as every task waits (tests/support/virtual_time.py)."""
    # pytest-trio runs a test on the clock among the test's own arguments; on one that only a fixture has, it would
    # really sleep.
    assert "autojump_clock" in inspect.signature(request.function).parameters, "take autojump_clock beside wall_clock"
    return TrioWallClock(START_MS, autojump_clock)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands that run in this process set logging up; the next test must not log to what they were given."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)
