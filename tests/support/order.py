"""The order of test files where workers divide them: long ones first, so that all workers end at about the same time.

A worker takes the next file when it has finished one (`--dist loadfile --no-loadscope-reorder`, see the Makefile), so
what comes last should be short. Lengths are estimated by the marks: what is not marked takes milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

SECONDS = {"spark": 8.0, "interop": 8.0, "slow": 8.0, "process": 0.5}
UNMARKED = 0.02


class LongFilesFirst:
    """A plugin of pytest; tests/conftest.py registers it."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not hasattr(config, "workerinput"):
            return  # one process keeps the order in which people look for a file
        lengths: defaultdict[Path, float] = defaultdict(float)
        for item in items:
            marks = (SECONDS.get(mark.name, UNMARKED) for mark in item.iter_markers())
            lengths[item.path] += max(marks, default=UNMARKED)
        items.sort(key=lambda item: -lengths[item.path])
