"""Compares log files with their seals, the checksums that our broker keeps of full ones.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import list_folder, read_file, read_range
from rocketlet.spark_jobs.log_pieces import Scanned
from rocketlet.spark_jobs.progress import progress
from rocketlet.spark_jobs.verify_report import FINDING_SCHEMA, VerifyReport, finding_table, findings_of
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.file_names import SEALS, offset_name, parse_offset

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def verify_seals(session: SparkSession, scanned: Scanned, root: str, report: VerifyReport) -> None:
    """A seal covers every byte of a full log file, even those that no CRC of a record covers."""
    sealed = {parse_offset(entry.name) for entry in list_folder(f"{root}/{SEALS}")}
    segments = [segment for segment in scanned.log.segments if segment.base in sealed]
    if not segments:
        return
    report.sealed = len(segments)
    work = [(segment.path, f"{root}/{SEALS}/{offset_name(segment.base)}", segment.base) for segment in segments]
    tasks = session.range(0, len(work), 1, len(work))
    with progress(session, "verifying seals", sum(segment.size for segment in segments)):
        rows = tasks.mapInArrow(_seal_checker(work), FINDING_SCHEMA).collect()
    report.findings += findings_of(rows)


def _seal_checker(work: list[tuple[str, str, int]]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            for path, seal_path, base in [work[number] for number in batch.column(0).to_pylist()]:
                seal = seal_layout.decode(read_file(seal_path) or b"")
                if seal is None or seal.log_offset != base:
                    rows.append({"place": seal_path, "what": "seal that cannot be read", "count": 1, "first": -1})
                    continue
                broken = list(seal_layout.broken_blocks(seal, partial(_read_block, path)))
                if broken:
                    first = base + seal.block(broken[0])[0]
                    problem = f"blocks of {seal.block_size} bytes do not match the file's seal"
                    rows.append({"place": path, "what": problem, "count": len(broken), "first": first})
            yield from finding_table(rows).to_batches()

    return check


def _read_block(path: str, at: int, size: int) -> bytes:
    return bytes(read_range(path, at, size))
