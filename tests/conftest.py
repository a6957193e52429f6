"""Shared by all tests: the suite's rules, the recorded vectors, and virtual time."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio.testing
from hypothesis import find, settings
from hypothesis import strategies as st

from rocketlet.common.clock import TrioWallClock
from tests.support import bare_platform, bytecode, properties
from tests.support.order import LongFilesFirst
from tests.support.suite_rules import SuiteRules
from tests.support.virtual_time import START_MS

VECTORS = Path(__file__).parent / "vectors"

# Our own programs start a thousand times, and without cached bytecode each start takes three times as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Java programs, including Spark, live for seconds: optimising them costs more than it gains, 40 % of a test.
# Verifying the classes of their jars takes 1 s of the 7 in which Spark starts.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

# A session keeps what it imported and collected: looking through all of it again and again takes an eighth of the time.
gc.set_threshold(100_000, 50, 50)

bare_platform.remove_modules()
properties.load_profile()


def pytest_configure(config: pytest.Config) -> None:
    bytecode.make_part(config)
    config.pluginmanager.register(SuiteRules(config), "rocketlet-suite-rules")
    config.pluginmanager.register(properties.FailuresAreKept(), "rocketlet-kept-failures")
    config.pluginmanager.register(LongFilesFirst(), "rocketlet-long-files-first")


def pytest_collection_finish() -> None:
    """What is there now stays until the end: no collection of garbage looks at it again, which saves a fourteenth."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The recorded frames, stores and tables of a running RocketMQ 4.9.8; see tests/vectors/README.md."""
    return VECTORS


@pytest.fixture(scope="session", autouse=True)
def character_tables() -> None:
    """Hypothesis computes them once per machine, in a second. No test should be charged for it."""
    find(st.text(), lambda _: True, settings=settings(database=None))


@pytest.fixture
def wall_clock(request: pytest.FixtureRequest, autojump_clock: trio.testing.MockClock) -> TrioWallClock:
    """Wall time that follows trio's; both jump as soon as every task waits (tests/support/virtual_time.py)."""
    # pytest-trio uses the clock among the test's own arguments; with one that only a fixture has, it would really
    # sleep.
    assert "autojump_clock" in inspect.signature(request.function).parameters, "take autojump_clock beside wall_clock"
    return TrioWallClock(START_MS, autojump_clock)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands run in this process configure logging; the next test must not log to their streams."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)
