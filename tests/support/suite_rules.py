"""The rules that hold for every test: how long it may take, and that a test which starts processes is marked.

A test without a mark takes at most a second and stays in this process. `slow` allows more time, `process` allows other
programs; `spark` and `interop` allow both. `make quick` runs the tests without a mark, `make fast` those marked
`process` too, `make test` everything.

A busy machine does not break the rule, because time in which a task waited for a processor or a disk is not counted.
The kernel records it (pressure stall information, Linux 4.20). Without that record only CPU time is measured, and a
sleeping test goes unnoticed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import properties

# Three times as much in continuous integration, which runs every Python on machines of any speed.
LIMIT_SECONDS = 3.0 if os.environ.get("CI") else 1.0
# On an overloaded machine the same work costs more CPU time, because caches and cores are shared.
BUSY_FACTOR = 3
FREE_OF_RULES = {"slow", "spark", "interop"}
PRESSURE = [Path("/proc/pressure/cpu"), Path("/proc/pressure/io")]
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


class Stopwatch:
    """Time that this process used or slept, without time spent waiting for the machine, as far as known."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._stalled = time.monotonic(), time.process_time(), stalled_seconds()

    def seconds(self) -> float:
        """A lower bound of the time on an idle machine."""
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        if self._stalled is None or (now := stalled_seconds()) is None:
            return cpu
        stalled = min(now - self._stalled, wall)
        # Waits count half: a disk that flushes for a second is not always reported as a stall.
        return max(cpu / (1 + (BUSY_FACTOR - 1) * stalled / max(wall, 0.001)), (wall - stalled) / 2)


def stalled_seconds() -> float | None:
    """For how long, since the machine started, tasks had to wait for a processor or a disk, at most."""
    try:
        totals = [path.read_text().partition("total=")[2].split()[0] for path in PRESSURE]
    except (OSError, IndexError):
        return None
    # The kernel takes the mean over all processors that were not idle; one of them may have stalled for all of it.
    return sum(map(int, totals)) / 1e6 * (os.cpu_count() or 1)


class SuiteRules:
    """A plugin of pytest; tests/conftest.py registers it."""

    def __init__(self, config: pytest.Config) -> None:
        # More examples than usual were asked for, or somebody looks at variables while the clock runs.
        self._is_timed = not properties.is_thorough() and not config.getoption("usepdb")
        self._started_process = False
        self._shared = 0.0  # seconds spent on fixtures that other tests use too
        self._depth = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if event in STARTS:
            self._started_process = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._started_process, self._shared = False, 0.0
        self._watch = Stopwatch()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function" or self._depth:
            return (yield)
        watch = Stopwatch()
        self._depth += 1
        try:
            return (yield)
        finally:
            self._depth -= 1
            self._shared += watch.seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        outcome = yield
        marks = {mark.name for mark in item.iter_markers()}
        if marks & FREE_OF_RULES or "process" in marks:
            return outcome
        if self._started_process:
            pytest.fail("this test starts a process: mark it with pytest.mark.process", pytrace=False)
        seconds = self._watch.seconds() - self._shared
        if seconds > LIMIT_SECONDS and self._is_timed:
            pytest.fail(
                f"this test takes {seconds:.1f} s, and one without a mark may take {LIMIT_SECONDS:g}: make it faster"
                " (virtual time, fewer examples, a smaller case beside a slow one), or mark it with pytest.mark.slow",
                pytrace=False,
            )
        return outcome
