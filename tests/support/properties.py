"""How many examples hypothesis draws, and what is kept of a failing property.

    HYPOTHESIS_PROFILE=quick       10 examples: `make quick`
    HYPOTHESIS_PROFILE=default     40: all other runs
    HYPOTHESIS_PROFILE=thorough    1,000, other ones each time: by hand, for the store and the codecs

The examples of the first two are derived from the test, so that a run repeats. A property with a number of its own
takes it from `examples`, so that the profiles hold for it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

DEFAULT = 40
COUNTS = {"quick": 10, "default": DEFAULT, "thorough": 1000}
KEPT = Path(".hypothesis")


def profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "default")


def is_thorough() -> bool:
    return profile() == "thorough"


def examples(count: int) -> int:
    """`count` in the default profile; proportionally fewer or more in the others."""
    return max(1, count * COUNTS[profile()] // DEFAULT)


def load_profile() -> None:
    """Raises KeyError for a profile that does not exist."""
    for name in ("quick", "default"):
        settings.register_profile(
            f"rocketlet-{name}", max_examples=COUNTS[name], deadline=None, derandomize=True, print_blob=True
        )
    settings.register_profile(
        "rocketlet-thorough",
        max_examples=COUNTS["thorough"],
        deadline=None,
        print_blob=True,
        database=DirectoryBasedExampleDatabase(KEPT / "examples"),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile(f"rocketlet-{profile()}")


class FailuresAreKept:
    """A plugin of pytest: the output of a failing property, including its steps, is kept in a file."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None and getattr(call.excinfo.value, "__notes__", None):
            file = KEPT / "failures" / (re.sub(r"[^\w.-]+", "-", item.nodeid) + ".txt")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{item.nodeid}\n\n{report.longreprtext}\n", "utf-8")
            report.sections.append(("Kept in", str(file)))
        return report
