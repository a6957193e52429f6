"""Rebuilds all consume queues and index files of a store from its log, byte for byte as our own recovery does.

    scan      each split once: pieces and summaries, kept by Spark (log_pieces)
    stitch    the driver sees that the splits meet, finds the log's end, numbers the index entries, plans the queues
    write     queue files and index files in parallel, into a folder of their own (queue_files, index_files)
    put       the folders are renamed to their final names, checkpoint and settings follow

So a job that dies leaves the store as it was.

Java: store/DefaultMessageStore.java#recoverTopicQueueTable, store/CommitLog.java#recoverAbnormally
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketlet.common.errors import RocketletError
from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, LogDamage
from rocketlet.spark_jobs.files import (
    copy_folder,
    exists,
    is_locked,
    is_uri,
    list_folder,
    remove_folder,
    rename,
    write_file,
)
from rocketlet.spark_jobs.index_files import IndexWritten, write_index
from rocketlet.spark_jobs.log_pieces import Scanned, scan_log
from rocketlet.spark_jobs.queue_files import QueuesWritten, write_queues
from rocketlet.store.layout import checkpoint_layout
from rocketlet.store.layout.consume_queue_entry import DEFAULT_FILE_SIZE, ENTRY_SIZE
from rocketlet.store.layout.file_names import CHECKPOINT, CONFIG, CONSUME_QUEUE, INDEX, LOCK, parse_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules


class CannotWrite(RocketletError):
    """The target is occupied, in use, or not a plain path; the text says what to do."""


@dataclass(slots=True)
class IndexReport:
    """What an index job read and wrote."""

    records: int = 0
    log_bytes: int = 0
    log_begin: int = 0
    log_end: int = 0
    is_cut: bool = False
    queues: QueuesWritten = field(default_factory=QueuesWritten)
    index: IndexWritten = field(default_factory=IndexWritten)
    damages: list[LogDamage] = field(default_factory=list)
    strange_topics: list[str] = field(default_factory=list)
    inner_batches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """In sentences, what is wrong first."""
        result = [
            f"{damage.path}: {damage.size} bytes at {damage.log_offset}: {damage.reason}" for damage in self.damages
        ]
        if self.is_cut:
            result.append(f"stopped at the first damage: the log ends at {self.log_end} for this index")
        queues = self.queues
        if queues.uneven:
            result.append(
                f"{len(queues.uneven)} queues with gaps or repeated offsets: {queues.lost} offsets marked as lost, "
                f"{queues.rewound} assigned twice, {queues.implausible} implausible ({', '.join(queues.uneven[:5])})"
            )
        result += [
            f"topic {name!r}: left out, because its name or numbers cannot be right" for name in self.strange_topics
        ]
        result += [
            f"topic {name!r}: holds inner batches of 5.x, whose batchconsumequeue is not written"
            for name in self.inner_batches
        ]
        result += self.notes
        result.append(
            f"{self.records} records, {self.log_bytes >> 20} MiB from {self.log_begin} to {self.log_end}: "
            f"{queues.units} units in {queues.files} files of {queues.queues} queues, "
            f"{self.index.entries} keys in {self.index.files} index files"
        )
        return result


def rebuild_index(
    session: SparkSession,
    store: str,
    out: str,
    rules: Rules,
    *,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
    stop_at_damage: bool = False,
    replace: bool = False,
) -> IndexReport:
    """The whole job. Raises StoreNotFound, CannotWrite."""
    _check_place(out, replace=replace)
    scanned = scan_log(
        session, store, rules, partitions=partitions, split_size=split_size, stop_at_damage=stop_at_damage
    )
    staging = f"{out.rstrip('/')}/.rocketlet-index-{uuid.uuid4().hex[:8]}"
    try:
        report = _report_of(scanned)
        report.queues = write_queues(session, scanned, staging, rules)
        report.index = write_index(session, scanned, staging, rules)
        _put(out, staging, scanned, report)
    finally:
        scanned.pieces.unpersist()
        remove_folder(staging)
    _copy_settings(store, out, report)
    return report


def _check_place(out: str, *, replace: bool) -> None:
    if is_uri(out):
        raise CannotWrite(f"{out}: queues and index are written to plain paths only; mount it and name the mount")
    if is_locked(f"{out}/{LOCK}"):
        raise CannotWrite(f"a broker runs on {out}; stop it, or write to another directory")
    for name in (CONSUME_QUEUE, INDEX):
        if not replace and list_folder(f"{out}/{name}"):
            raise CannotWrite(f"{out}/{name} is not empty; move it away, or say --replace to put the new one there")


def _report_of(scanned: Scanned) -> IndexReport:
    report = IndexReport(log_begin=scanned.log.begin_offset, log_end=scanned.stitched.end)
    report.is_cut = scanned.stitched.is_cut
    report.damages = scanned.stitched.damages
    for summary in scanned.summaries:
        report.records += summary.records
        report.log_bytes += summary.log_bytes
    report.strange_topics = sorted({name for summary in scanned.summaries for name in summary.strange_topics})
    report.inner_batches = sorted({name for summary in scanned.summaries for name in summary.inner_batches})
    if scanned.log.has_rocksdb_queues:
        report.notes.append("this store keeps its queues in RocksDB; these are file queues (storeType=default)")
    return report


def _put(out: str, staging: str, scanned: Scanned, report: IndexReport) -> None:
    """Move what was written to where it belongs, replacing what was there."""
    for name in (CONSUME_QUEUE, INDEX):
        place = f"{out}/{name}"
        if exists(place):
            rename(place, f"{staging}/replaced/{name}")
        if exists(f"{staging}/{name}"):
            rename(f"{staging}/{name}", place)
        else:
            os.makedirs(place)
    last = max((summary.last_time for summary in scanned.summaries), default=0)
    checkpoint = checkpoint_layout.Checkpoint(last, last, report.index.end_timestamp)
    write_file(f"{out}/{CHECKPOINT}", checkpoint_layout.FILE_SIZE, [(0, checkpoint_layout.encode(checkpoint))])


def _copy_settings(store: str, out: str, report: IndexReport) -> None:
    """Topics, groups and offsets, where the result is a store of its own."""
    root = store.split(",")[0].rstrip("/")
    if is_uri(root) or os.path.abspath(root) == os.path.abspath(out) or exists(f"{out}/{CONFIG}"):
        return
    if copy_folder(f"{root}/{CONFIG}", f"{out}/{CONFIG}"):
        report.notes.append(f"copied {root}/{CONFIG}; a broker on {out} needs storePathCommitLog={root}/commitlog")


def queue_file_size(store: str) -> int:
    """The size of the queue files that a store has already; the default where it has none."""
    root = f"{store.split(',')[0].rstrip('/')}/{CONSUME_QUEUE}"
    for topic in list_folder(root):
        for queue in list_folder(f"{root}/{topic.name}") if topic.is_folder else []:
            for file in list_folder(f"{root}/{topic.name}/{queue.name}") if queue.is_folder else []:
                if parse_offset(file.name) is not None and file.size and file.size % ENTRY_SIZE == 0:
                    return file.size
    return DEFAULT_FILE_SIZE
