"""Shared by all tests: where the recorded vectors are, and hypothesis profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

VECTORS = Path(__file__).parent / "vectors"

# Examples are derived from the test, so that a run repeats; the thorough profile is for the slow suite.
settings.register_profile("fast", max_examples=40, deadline=None, derandomize=True)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The recorded frames, stores and tables of a running RocketMQ 4.9.8; see tests/vectors/README.md."""
    return VECTORS
