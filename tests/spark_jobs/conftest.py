"""The recorded stores, unpacked once per run, and one Spark session for all tests that need one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.recorded_stores import STORES, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = ["clean", "crash", "mixed", "shapes", "ext", "ipv6", "retained", "slave"]
DAMAGED = sorted(path.name for path in (STORES / "damaged").iterdir() if path.is_dir())


@pytest.fixture(scope="session")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a recorded store (`clean`, `damaged/crash-torn-tail`), for reading only."""
    unpacked: dict[str, Path] = {}

    def store(case: str) -> Path:
        if case not in unpacked:
            unpacked[case] = unpack(case, tmp_path_factory.mktemp(case.replace("/", "-")))
        return unpacked[case]

    return store


def expected_of(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORES / case / "expected.json").read_text("utf-8"))
    return found


def settings_of(case: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((STORES / case / "manifest.json").read_text("utf-8"))["settings"]
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from rocketlet.spark_jobs.session import spark_session

    session = spark_session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()


@pytest.fixture
def spark_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SPARK_HOME from which a local cluster starts its executors."""
    import pyspark

    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
