"""How workers divide the files of tests: long ones first, so that all workers end at about the same time.

A worker takes the next file when it has begun the last test of one (`--dist loadfile --no-loadscope-reorder`, see the
Makefile), so what comes last should be short.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

# By the clock, on two processors with other workers beside. They need not be right, only about in order.
LONGEST = {
    "interop/test_replication.py": 110,
    "console/test_in_browser.py": 110,
    "interop/test_name_server.py": 90,
    "spark_jobs/test_follow.py": 85,
    "interop/test_python_scenarios.py": 70,
    "interop/test_official_client.py": 70,
    "interop/test_failover.py": 66,
    "interop/test_store_takeover.py": 60,
    "interop/test_mqadmin_beside_java.py": 58,
    "store/test_crashes.py": 55,
    "store/test_killed_process.py": 55,
    "spark_jobs/rocketmq/test_sink_killed.py": 51,
    "spark_jobs/test_standalone.py": 50,
    "interop/test_mqadmin.py": 45,
    "interop/test_access.py": 42,
    "spark_jobs/test_example.py": 37,
    "interop/test_grpc_clients.py": 35,
    "docs/test_snippets.py": 35,
    "examples/test_notebook.py": 32,
    "interop/test_waiting.py": 25,
}
# Of the others: by the marks of each test. What is not marked takes milliseconds.
SECONDS = {"spark": 3.0, "interop": 5.0, "slow": 5.0, "process": 0.5}
UNMARKED = 0.02
TESTS = Path(__file__).parents[1]


# These share a Spark session, which costs as much to start as most of them take.
ONE_SESSION = "spark_jobs/"
ONE_SESSION_SECONDS = 200


def run_together(name: str) -> str:
    """What a file goes to a worker with: itself, or a folder whose files share what is costly to start."""
    return ONE_SESSION if name.startswith(ONE_SESSION) and name not in LONGEST else name


class LongFilesFirst:
    """A plugin of pytest; tests/conftest.py registers it."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not hasattr(config, "workerinput"):
            return  # a single process keeps the alphabetical order
        places = {item.path: run_together(item.path.relative_to(TESTS).as_posix()) for item in items}
        lengths: defaultdict[str, float] = defaultdict(float)
        for item in items:
            marks = (SECONDS.get(mark.name, UNMARKED) for mark in item.iter_markers())
            lengths[places[item.path]] += max(marks, default=UNMARKED)
        for name, seconds in {**LONGEST, ONE_SESSION: ONE_SESSION_SECONDS}.items():
            # Where only its quick tests were asked for, it is not long.
            if lengths.get(name, 0.0) >= min(SECONDS["spark"], SECONDS["slow"]):
                lengths[name] = seconds
        items.sort(key=lambda item: -lengths[places[item.path]])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadFileScheduling

        class Scheduling(LoadFileScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return run_together(nodeid.partition("::")[0].removeprefix("tests/"))

        return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
