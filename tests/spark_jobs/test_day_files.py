"""Batches appear once, whatever fails in between; hypothesis kills the writer at every call that changes the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.spark_jobs.day_files import DayFiles


class Killed(BaseException):
    """The process is killed here."""


@contextmanager
def killed_after(calls: int) -> Iterator[None]:
    """Ends the block at one of the calls that rename or remove a file."""
    left = calls

    def counted(call):  # type: ignore[no-untyped-def]
        def counting(*arguments, **names):  # type: ignore[no-untyped-def]
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return call(*arguments, **names)

        return counting

    with mock.patch.object(os, "replace", counted(os.replace)), mock.patch.object(os, "unlink", counted(os.unlink)):
        try:
            yield
        except Killed:
            pass


def write(files: DayFiles, batch: int, rows: dict[str, list[int]]) -> None:
    """A query's write of one batch: rows by topic, in two files each."""
    staging = files.staging(batch)
    for topic, numbers in rows.items():
        folder = staging / "day=2026-11-18" / f"topic={topic}"
        folder.mkdir(parents=True)
        half = len(numbers) // 2
        for name, part in (("a", numbers[:half]), ("b", numbers[half:])):
            if part:
                pq.write_table(pa.table({"number": part}), folder / f"{name}.parquet")
    files.add(batch)


def rows_of(root: Path) -> list[int]:
    return sorted(
        number
        for path in root.glob("day=*/topic=*/*.parquet")
        for number in pq.ParquetFile(path).read()["number"].to_pylist()
    )


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.booleans()), max_size=14))
def test_every_row_exists_once_after_any_crashes(steps: list[tuple[int, int, bool]]) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        files = DayFiles(root)
        batch, expected = 0, []
        for kill_at, rows, compacts in steps:
            numbers = list(range(batch * 100, batch * 100 + rows))
            with killed_after(kill_at):
                write(files, batch, {"A": numbers, "B": [number + 50 for number in numbers]})
                if compacts:
                    files.compact(batch)
            # The next process finishes what was interrupted, and the batch is repeated, since it was not confirmed.
            files.recover()
            write(files, batch, {"A": numbers, "B": [number + 50 for number in numbers]})
            expected += [*numbers, *(number + 50 for number in numbers)]
            assert rows_of(root) == sorted(expected)
            batch += 1
        files.compact(batch)
        assert rows_of(root) == sorted(expected)
    finally:
        shutil.rmtree(root)


def test_small_files_are_compacted_and_the_open_batch_left_alone(tmp_path: Path) -> None:
    files = DayFiles(tmp_path)
    for batch in range(10):
        write(files, batch, {"A": [batch]})
    assert files.compact(9) == 9
    assert sorted(path.name for path in tmp_path.glob("day=*/topic=A/*")) == [
        "batch-000000000-to-000000008-0.parquet",
        "batch-000000009-0.parquet",
    ]
    assert rows_of(tmp_path) == list(range(10))
    assert files.compact(9) == 0


def test_files_that_are_large_enough_are_kept(tmp_path: Path) -> None:
    files = DayFiles(tmp_path, target_bytes=100)
    for batch in range(20):
        write(files, batch, {"A": list(range(batch, batch + 3))})
    assert files.compact(20) == 0
