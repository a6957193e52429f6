"""Queues and index files made by Spark, byte for byte against those of a real RocketMQ and of our own store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.files import list_folder
from store.layout.consume_queue_entry import ENTRY, LOST, PRE_BLANK, entries_of
from store.layout.file_names import offset_name
from store.layout.index_layout import IndexGeometry
from tests.spark_jobs.conftest import expected_of, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.index_segments import Rules

pytestmark = pytest.mark.spark
Stores = Callable[[str], Path]


def rules_of(case: str) -> Rules:
    from spark_jobs.index_segments import Rules

    settings = settings_of(case)
    geometry = IndexGeometry(int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"]))
    return Rules(int(settings["mappedFileSizeConsumeQueue"]) // 20, geometry)


def files_below(root: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(root)), path.read_bytes()


def index_contents(store: Path) -> list[bytes]:
    return [(store / "index" / entry.name).read_bytes() for entry in list_folder(str(store / "index"))]


@pytest.mark.parametrize(
    ("case", "partitions"),
    [
        ("clean", 1),
        ("clean", 7),
        ("mixed", 1),
        ("mixed", 7),
        ("shapes", 7),
        ("ipv6", 7),
        ("crash", 7),
        ("slave", 7),
        pytest.param("clean", 200, marks=pytest.mark.slow),
        pytest.param("shapes", 200, marks=pytest.mark.slow),
    ],
)
def test_files_equal_those_of_rocketmq(
    spark: SparkSession, store_of: Stores, tmp_path: Path, case: str, partitions: int
) -> None:
    from spark_jobs.index_writer import rebuild_index

    report = rebuild_index(spark, str(store_of(case)), str(tmp_path), rules_of(case), partitions=partitions)
    assert dict(files_below(tmp_path / "consumequeue")) == dict(files_below(store_of(case) / "consumequeue"))
    assert index_contents(tmp_path) == index_contents(store_of(case))
    expected = expected_of(case)
    assert report.records == len(expected["records"])
    assert report.queues.queues == len(expected["queues"])
    assert report.damages == []
    assert report.queues.uneven == []
