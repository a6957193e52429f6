"""Checking a whole store without changing it: what is damaged, what a repair would do, what is worth a note.

The check of log, queues and index is their recovery, walking the whole log, on a disk that keeps nothing
(store/dry_disk.py): so it reports exactly what a repair does. It also compares seals with log files,
the checkpoint against the newest message, the JSON tables as JSON, and consumers' offsets against the queues.

Severities: *damage* cannot be made good from this directory; *repairable* can, by `repair` or at the next start;
a *note* is neither.

Java: (none)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from rocketlet.common import fastjson
from rocketlet.store.checkpoint import CheckpointFile
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.disk import Disk
from rocketlet.store.dry_disk import DryDisk
from rocketlet.store.errors import StoreLocked
from rocketlet.store.geometry import check_is_store, found_config
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.file_names import (
    ABORT,
    CHECKPOINT,
    CONFIG,
    LOCK,
    SEALS,
    offset_name,
    parse_offset,
)
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.recovery import Recovery, RecoveryReport

_log = logging.getLogger("rocketlet.store.check")

DAMAGE = "damage"
REPAIRABLE = "repairable"
NOTE = "note"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    severity: str
    where: str  # log, queue, index, seal, checkpoint, table, store
    what: str
    log_offset: int | None = None


@dataclass(slots=True)
class CheckReport:
    """The result of a check. `is_sound`: nothing damaged, nothing to repair."""

    root: str
    is_clean: bool = True
    in_use: bool = False
    log_begin: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    index_entries: int = 0
    sealed_files: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return all(finding.severity == NOTE for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.is_sound}

    def lines(self) -> list[str]:
        """For people: the findings, worst first, then what was checked."""
        order = [DAMAGE, REPAIRABLE, NOTE]
        lines = [
            f"{finding.severity}: {finding.where}: {finding.what}"
            for finding in sorted(self.findings, key=lambda finding: order.index(finding.severity))
        ]
        state = "in use" if self.in_use else "closed" if self.is_clean else "not cleanly closed"
        lines.append(
            f"{self.root} ({state}): log {self.log_begin} to {self.log_end}, {self.records} records,"
            f" {self.queues} queues, {self.index_entries} index entries, {self.sealed_files} seals, checked in"
            f" {self.seconds:.1f} s: {'sound' if self.is_sound else 'NOT SOUND'}"
        )
        return lines


def check(
    disk: Disk, config: StoreConfig, on_progress: Progress = _log.info, *, find_sizes: bool = True
) -> CheckReport:
    """Check a store. Changes nothing. With `find_sizes` the sizes are taken from the files themselves."""
    start = perf_counter()
    root = config.store_path_root_dir
    check_is_store(disk, root)
    if find_sizes:
        config = found_config(disk, config)
    return _Check(disk, config, on_progress).run(start)


def repair(
    disk: Disk, config: StoreConfig, on_progress: Progress = _log.info, *, find_sizes: bool = True
) -> RecoveryReport:
    """Do what `check` reported: heal and cut the log, rebuild queues and index. Raises StoreLocked while a broker
    runs."""
    import trio  # a check needs none

    from rocketlet.store.message_store import MessageStore

    if find_sizes:
        config = found_config(disk, config)

    async def open_and_close() -> RecoveryReport:
        store = MessageStore(disk, config, lambda: 0, on_progress=on_progress)
        report = await store.open(whole=True)
        await store.close()
        return report

    return trio.run(open_and_close)


class _Check:
    def __init__(self, disk: Disk, config: StoreConfig, on_progress: Progress) -> None:
        self._disk = disk
        self._config = config
        self._root = config.store_path_root_dir
        self._on_progress = on_progress
        self._report = CheckReport(self._root)
        self._newest = 0

    def run(self, start: float) -> CheckReport:
        report = self._report
        report.in_use = self._is_in_use()
        report.is_clean = not self._disk.exists(f"{self._root}/{ABORT}")
        if report.in_use:
            self._add(NOTE, "store", "a broker has it open; what it wrote meanwhile may seem to be missing")
        self._check_seals()
        queues = self._check_log()
        self._check_checkpoint()
        self._check_tables(queues)
        report.seconds = perf_counter() - start
        return report

    def _add(self, severity: str, where: str, what: str, log_offset: int | None = None) -> None:
        self._report.findings.append(Finding(severity, where, what, log_offset))

    def _is_in_use(self) -> bool:
        if not self._disk.exists(f"{self._root}/{LOCK}"):
            return False
        try:
            self._disk.lock(f"{self._root}/{LOCK}").release()
        except StoreLocked:
            return True
        except OSError:
            pass  # a read-only directory, such as a snapshot: nothing writes there
        return False

    # ---- log, queues, index

    def _check_log(self) -> ConsumeQueueTable:
        disk = DryDisk(self._disk)
        config = self._config
        log = CommitLog(disk, config.commit_log_path, config.mapped_file_size_commit_log)
        queues, index = ConsumeQueueTable(disk, config), MessageIndex(disk, config)
        recovery = Recovery(disk, config, log, queues, index, CheckpointFile(disk, self._root), self._on_progress)
        recovered = recovery.run(whole=True)
        report = self._report
        report.log_begin, report.log_end, report.records = recovered.log_begin, recovered.log_end, recovered.records
        report.queues, report.index_entries = len(queues.queues), index.statistics().entries
        self._newest = recovered.last.store_timestamp if recovered.last is not None else 0
        self._report_log(recovered)
        self._report_files(recovered)
        return queues

    def _report_log(self, recovered: RecoveryReport) -> None:
        for loss in recovered.losses:
            text = f"{loss.size} bytes at offset {loss.log_offset}: {loss.fault.value}; what was there is lost"
            self._add(DAMAGE, "log", text, loss.log_offset)
        if recovered.cut_bytes:
            text = f"{recovered.cut_bytes} bytes after its end at {recovered.log_end} ({recovered.cut_why}) will be cut"
            self._add(REPAIRABLE if recovered.was_clean else NOTE, "log", text, recovered.log_end)
        for lack in recovered.lacks:
            self._add(DAMAGE, "log", lack)
        for note in recovered.notes:
            self._add(REPAIRABLE, "store", note)
        for stray in recovered.strays:
            self._add(NOTE, "store", f"{stray} does not belong to the store; a Java broker would not start")

    def _report_files(self, recovered: RecoveryReport) -> None:
        for topic, count in recovered.gone.items():
            text = f"{topic}: messages of {count} queues are in the log, but the topic was deleted after them"
            self._add(NOTE, "queue", text)
        for finding in recovered.queues:
            name = f"{finding.topic}:{finding.queue_id}"
            text = f"{name}: {finding.differing} entries missing or wrong, {finding.surplus} too many"
            self._add(REPAIRABLE, "queue", text)
        if recovered.index:
            index = recovered.index
            text = f"{index.differing} entries missing or wrong, {index.surplus} too many, {index.chains} chains wrong"
            self._add(REPAIRABLE, "index", text)

    # ---- the rest

    def _check_seals(self) -> None:
        folder = f"{self._root}/{SEALS}"
        for entry in self._disk.entries(folder):
            offset = parse_offset(entry.name)
            data = self._disk.read_file(f"{folder}/{entry.name}")
            path = f"{self._config.commit_log_path}/{entry.name}"
            if offset is None or data is None or not self._disk.exists(path):
                continue
            seal = seal_layout.decode(data)
            if seal is None:
                self._add(REPAIRABLE, "seal", f"{folder}/{entry.name} is damaged itself")
                continue
            self._on_progress(f"check: seal of {offset_name(offset)}")
            self._report.sealed_files += 1
            region = self._disk.open_private(path, seal.file_size)
            for number in seal_layout.broken_blocks(seal, region.read):
                begin, end = seal.block(number)
                text = f"{path}: bytes {begin} to {end} are not what they were when the file was sealed"
                self._add(DAMAGE, "seal", text, offset + begin)

    def _check_checkpoint(self) -> None:
        data = self._disk.read_file(f"{self._root}/{CHECKPOINT}")
        if data is None:
            self._add(NOTE, "checkpoint", "there is none; a recovery reads the whole log")
            return
        checkpoint = CheckpointFile(self._disk, self._root)
        checkpoint.load()
        if checkpoint.times.log_timestamp > self._newest > 0:
            self._add(
                DAMAGE, "checkpoint",
                f"it knows of messages flushed at {checkpoint.times.log_timestamp}, the newest in the log is of"
                f" {self._newest}: the end of the log is lost",
            )  # fmt: skip

    def _check_tables(self, queues: ConsumeQueueTable) -> None:
        folder = f"{self._root}/{CONFIG}"
        for entry in self._disk.entries(folder):
            if entry.is_directory or not entry.name.endswith((".json", ".json.bak")):
                continue
            data = self._disk.read_file(f"{folder}/{entry.name}") or b""
            try:
                table = fastjson.loads(data) if data.strip() else {}
                if not isinstance(table, dict):
                    raise fastjson.InvalidJson(f"{type(table).__name__} where an object should be")
            except fastjson.InvalidJson as error:
                spare = entry.name + ".bak"
                is_spared = entry.name.endswith(".bak") or self._disk.exists(f"{folder}/{spare}")
                text = f"{folder}/{entry.name} cannot be read: {error}"
                self._add(REPAIRABLE if is_spared else DAMAGE, "table", text)
                continue
            if entry.name == "consumerOffset.json":
                self._check_offsets(table.get("offsetTable") or {}, queues)

    def _check_offsets(self, table: dict[str, Any], queues: ConsumeQueueTable) -> None:
        for name, offsets in table.items():
            topic, _, group = name.partition("@")
            for queue_id, offset in offsets.items():
                queue = queues.find(topic, int(queue_id))
                end = queue.end if queue is not None else 0
                if int(offset) > end:
                    text = f"group {group} has consumed {topic}:{queue_id} up to {offset}, which ends at {end}"
                    self._add(NOTE, "table", text)
