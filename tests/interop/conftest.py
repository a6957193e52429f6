"""RocketMQ's own programs, built once a machine; without them the tests here are skipped with what is missing."""

from __future__ import annotations

import pytest

from tests.support.java_programs import JavaPrograms, Missing


@pytest.fixture(scope="session")
def java() -> JavaPrograms:
    """Scenarios of the official client, and Java brokers."""
    try:
        return JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))
