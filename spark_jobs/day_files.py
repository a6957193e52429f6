"""Parquet files by day and topic that grow batch by batch, each batch once: day=2026-11-18/topic=Orders/….parquet.

A batch is written to a folder of its own first, and its files are then moved to names that carry its number. A batch
that is repeated, because its writer died, first removes what it had moved. So after any crash and a repetition every
row is there once; and since each file appears by a rename, readers never see half of one.

Compaction joins the small files of a folder. A note on the disk says what it is about to do before the joined file
appears, so that it can be finished after a crash. Only between that rename and the removal of the small files, a few
milliseconds, a reader could meet rows twice.

Names that begin with `_` are ours: Spark, Arrow and DuckDB skip them.

Java: none
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

OWN_FOLDER = "_follow"
_NAME = re.compile(r"batch-(\d{9,})(?:-to-(\d{9,}))?-\d+\.parquet")

# Fewer files than this are not worth joining.
_MIN_FILES = 8
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files below one folder. One process writes there at a time."""

    root: Path
    target_bytes: int = 128 << 20

    @property
    def own(self) -> Path:
        """The folder of what is not data."""
        return self.root / OWN_FOLDER

    def staging(self, batch: int) -> Path:
        """Where a batch is written to before it appears; empty at first."""
        path = self.own / "staging" / f"{batch:09d}"
        shutil.rmtree(path, ignore_errors=True)
        return path

    def add(self, batch: int) -> int:
        """Publish the staged files of a batch, replacing those of an earlier try. Returns their number."""
        for path, first, _ in self._files():
            if first == batch:
                path.unlink()
        staged = sorted((self.own / "staging" / f"{batch:09d}").glob("day=*/topic=*/*.parquet"))
        for number, path in enumerate(staged):
            folder = self.root / path.parent.parent.name / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            _synced(path)
            path.replace(folder / f"batch-{batch:09d}-{number}.parquet")
            _synced(folder)
        shutil.rmtree(self.own / "staging", ignore_errors=True)
        return len(staged)

    def recover(self) -> None:
        """Finish the compaction that a crash interrupted, if there is one."""
        note = self._note
        if not note.exists():
            return
        content = json.loads(note.read_text("utf-8"))
        joined, target = self.own / "joined.parquet", self.root / content["target"]
        if joined.exists():
            joined.replace(target)
        for name in content["sources"]:
            (self.root / name).unlink(missing_ok=True)
        _synced(target.parent)
        note.unlink()

    def compact(self, before: int) -> int:
        """Join small files of earlier batches, in every folder that has many. Returns how many were joined."""
        small: dict[Path, list[tuple[int, int, Path, int]]] = {}
        for path, first, last in self._files():
            size = path.stat().st_size
            if last < before and size < self.target_bytes // 2:
                small.setdefault(path.parent, []).append((first, last, path, size))
        joined = 0
        for candidates in small.values():
            selected, total = [], 0
            for file in sorted(candidates):
                if total + file[3] > self.target_bytes:
                    break
                selected.append(file)
                total += file[3]
            if len(selected) >= _MIN_FILES:
                self._join(
                    [path for _, _, path, _ in selected], selected[0][0], max(last for _, last, _, _ in selected)
                )
                joined += len(selected)
        return joined

    @property
    def _note(self) -> Path:
        return self.own / "compaction.json"

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        """The data files, with the first and the last batch that each holds."""
        for path in self.root.glob("day=*/topic=*/batch-*.parquet"):
            if name := _NAME.fullmatch(path.name):
                yield path, int(name[1]), int(name[2] or name[1])

    def _join(self, paths: list[Path], first: int, last: int) -> None:
        folder = paths[0].parent
        number = 0
        while (target := folder / f"batch-{first:09d}-to-{last:09d}-{number}.parquet").exists():
            number += 1
        joined = self.own / "joined.parquet"
        with pq.ParquetWriter(joined, pq.read_schema(paths[0])) as writer:
            for path in paths:
                with pq.ParquetFile(path) as file:
                    for rows in file.iter_batches(_ROWS_AT_ONCE):
                        writer.write_batch(rows)
        _synced(joined)
        content = {
            "target": str(target.relative_to(self.root)),
            "sources": [str(path.relative_to(self.root)) for path in paths],
        }
        write_whole(self._note, json.dumps(content))
        self.recover()


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that a crash leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, "utf-8")
    _synced(fresh)
    fresh.replace(path)
    _synced(path.parent)


def _synced(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows has no handle of a folder to flush
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
