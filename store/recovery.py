"""Recovery of a directory when it is opened, in whatever state a crash, another broker or a bad disk left it.

The log is the truth. It is walked from the last progress point that can be believed, else from its beginning; queues
and index are brought in line with it; it ends at the first place without a whole record, unless the missing one is
proven to have been on the disk once (log_walk.py): then the damage is healed and reported, and nothing after it is
lost. What follows the end becomes zeros, and all of it is flushed before the first message is taken:
otherwise a second crash could bring records back that this recovery has cut.

Nothing is deleted that is not understood: settings that do not fit the files, or a missing log that queues or
checkpoint refer to, end the start with an error.

Java: store/DefaultMessageStore.java#load, #recover, store/CommitLog.java#recoverNormally, #recoverAbnormally
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import Outline, outline
from rocketlet.store.checkpoint import CheckpointFile, Progress, checksum, read_progress
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import MANY, ConsumeQueueTable
from rocketlet.store.deleted_topics import DeletedTopics, read_deleted_topics
from rocketlet.store.disk import Disk
from rocketlet.store.dispatch import LastRecord
from rocketlet.store.errors import CorruptStore
from rocketlet.store.flush_marks import flushed_end, forget_flushed
from rocketlet.store.healing import Healing
from rocketlet.store.kept_aside import keep_aside, set_aside
from rocketlet.store.layout.file_names import (
    ABORT,
    CONSUME_QUEUE,
    DLEDGER_PREFIX,
    ROCKSDB_MARKER,
    offset_name,
    parse_offset,
)
from rocketlet.store.log_walk import Evidence, Found, LogWalk, Loss
from rocketlet.store.mapped_file import MappedFile, data_end, data_pieces
from rocketlet.store.mapped_file_queue import Oddity
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.rebuild_index import IndexFinding, IndexRebuild
from rocketlet.store.rebuild_queues import NotContinuous, QueueFinding, QueueRebuild
from rocketlet.store.record_columns import RecordColumns
from rocketlet.store.seal_files import drop_foreign_seals, drop_seals, seal_path, sealed_end

_MAX_MISSING = 1024  # log files created to fill one gap, at most
_PIECE = 1 << 20


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery found and did. `lines` has it as sentences, the worst first."""

    was_clean: bool = True
    log_begin: int = 0
    log_end: int = 0
    walked_from: int = 0
    records: int = 0
    cut_bytes: int = 0
    cut_why: str = ""
    losses: list[Loss] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    queues: list[QueueFinding] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)  # topic that was deleted -> queues in the log or on the disk
    index: IndexFinding = field(default_factory=IndexFinding)
    lacks: list[str] = field(default_factory=list)  # what was in the log once and no longer is
    notes: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)  # files that are none of the store's; left alone
    seconds: float = 0.0
    last: LastRecord | None = None
    is_saved: bool = False  # the progress point covers all this already

    @property
    def changed(self) -> bool:
        """Whether anything was repaired."""
        changes = self.losses or self.queues or self.index or self.lacks or self.notes
        return bool(self.cut_bytes or changes)

    def lines(self) -> list[str]:
        lines = []
        for loss in self.losses:
            lines.append(
                f"{loss.size} bytes of the log at offset {loss.log_offset} were damaged ({loss.fault.value});"
                " what was there is lost, what follows is kept"
            )
        lines += [f"kept the damaged bytes in {path}" for path in self.kept]
        if self.cut_bytes:
            lines.append(f"cut {self.cut_bytes} bytes after the log's end at {self.log_end} ({self.cut_why})")
        lines += self.lacks
        lines += self.notes
        lines += [f"{path} does not belong to the store; a Java broker would not start" for path in self.strays]
        for queue in self.queues:
            lines.append(
                f"queue {queue.topic}:{queue.queue_id}: {queue.differing} entries rebuilt, {queue.surplus} cut"
                + (": the log does not have those messages any more" if queue.surplus and self.was_clean else "")
            )
        if self.index:
            lines.append(
                f"index: {self.index.differing} entries rebuilt, {self.index.surplus} cut,"
                f" {self.index.chains} links of chains corrected"
            )
        for topic, count in self.gone.items():
            lines.append(f"topic {topic} was deleted: its {count} queues are not made again")
        state = "cleanly closed" if self.was_clean else "not cleanly closed"
        lines.append(
            f"the store was {state}; log {self.log_begin} to {self.log_end}, {self.records} records checked from"
            f" {self.walked_from} on in {self.seconds:.2f} s"
        )
        return lines


class Recovery:
    """One opening of a directory. Blocking: it runs in a worker thread where files are real."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueueTable,
        index: MessageIndex,
        checkpoint: CheckpointFile,
        on_progress: Callable[[str], None],
    ) -> None:
        self._disk = disk
        self._config = config
        self._root = config.store_path_root_dir
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._report = RecoveryReport()
        self._deleted = DeletedTopics()
        self._go_on: Callable[[], None] = lambda: None

    def run(self, *, whole: bool = False, go_on: Callable[[], None] | None = None) -> RecoveryReport:
        """`whole`: look at everything, whatever the progress point says. Raises CorruptStore or OSError.

        `go_on` is called between steps of a tenth of a second or so, and may raise to end the recovery.
        """
        self._go_on = go_on or self._go_on
        start = perf_counter()
        report = self._report
        refuse_other_layouts(self._disk, self._root)
        report.was_clean = not self._disk.exists(f"{self._root}/{ABORT}")
        self._checkpoint.load()
        self._deleted = read_deleted_topics(self._disk, self._root)
        self._load()
        progress = read_progress(self._disk, self._root)
        if not self._log.files.files:
            self._refuse_lost_log(progress)
        reason = ""
        if progress is None:
            reason = "there is no progress point, as in a store that was RocketMQ's until now"
        elif not self._is_believable(progress):
            reason = "the progress point does not fit the files"
            report.notes.append(f"{reason}; checked the whole store")
            if not self._has_record(progress):
                drop_foreign_seals(self._disk, self._root, self._log.files)
        elif whole:
            reason = "asked to"
        believed = progress if not reason else None
        self._announce_whole(reason)
        try:
            walk = self._walk(believed)
        except NotContinuous:
            believed = None
            self._announce_whole("the log does not continue as the progress point says")
            walk = self._walk(None)
        self._finish(walk, believed)
        if progress is not None and report.log_end < progress.log_offset:
            report.lacks.append(
                f"the log ends at {report.log_end}, but had been flushed up to {progress.log_offset}: the rest is lost"
            )
        report.seconds = perf_counter() - start
        return report

    # ---- finding the files

    def _load(self) -> None:
        lost = load_log(self._disk, self._log)
        odd = self._queues.load(self._log.begin, repair=True)
        odd += self._index.load(repair=True)
        for oddity in lost:
            if oddity.what == "gap":
                self._report.lacks.append(f"{oddity.path}: a file before it is missing")
        for oddity in lost + odd:
            if oddity.what == "foreign":
                self._report.strays.append(oddity.path)
            elif oddity.what == "length":
                self._report.notes.append(f"{oddity.path} had {oddity.size} bytes, too few; extended it to full length")
            elif oddity.what == "gap" and oddity in odd:
                self._report.notes.append(f"{oddity.path}: a file before it was missing")

    def _refuse_lost_log(self, progress: Progress | None) -> None:
        if progress is not None or self._checkpoint.times.log_timestamp > 0:
            raise CorruptStore(
                f"{self._log.files.directory}: no log there, but the store had one; is its disk mounted, is"
                f" storePathCommitLog right? To give the messages up, delete everything in {self._root} but config"
            )

    # ---- where to begin

    def _is_believable(self, progress: Progress) -> bool:
        """Whether files and progress point still have the same history."""
        return self._has_record(progress) and self._has_queues(progress) and self._has_index(progress)

    def _has_record(self, progress: Progress) -> bool:
        """Whether the log has the last record before the progress point."""
        offset, size = progress.record_offset, progress.record_size
        file = self._log.files.find(offset)
        if file is None or offset + size != progress.log_offset or progress.log_offset > file.end:
            return False
        present = outline(file.buffer, offset - file.begin, file.size, False, offset)
        if not isinstance(present, Outline) or present.size != size:
            return False
        record = file.buffer[offset - file.begin : offset - file.begin + size]
        return checksum(record) == progress.record_crc

    def _has_queues(self, progress: Progress) -> bool:
        for name, end in progress.queues.items():
            topic, _, queue_id = name.rpartition("/")
            if self._deleted.since(topic, progress.log_offset):
                continue  # its files are being deleted, or those of a new queue of that name
            queue = self._queues.find(topic, int(queue_id))
            if queue is None:
                return False
            queue.end = end
            entry = queue.entry(end - 1)
            queue.forget()
            if entry is None or not 0 <= entry[0] < progress.log_offset or entry[1] <= 0:
                return False
        return True

    def _has_index(self, progress: Progress) -> bool:
        if not self._config.message_index_enable:
            return True
        if not progress.index_name:
            return True
        for file in self._index.files:
            if file.file.begin == progress.index_name:
                number = progress.index_next - 1
                if not 1 <= number <= file.count:
                    return number == 0
                return file.table.entry(number)[1] == progress.index_end
        return False

    # ---- the walk

    def _walk(self, progress: Progress | None) -> _Walk:
        """Walk the log, from the progress point if there is one. Raises NotContinuous."""
        begin = progress.log_offset if progress is not None else self._log.begin
        queues = QueueRebuild(
            self._queues, self._log.begin, progress.queues if progress is not None else None, repair=True,
            known_at=begin, deleted=self._deleted,
        )  # fmt: skip
        index = self._index_rebuild(progress)
        healing = Healing(self._disk, self._log, self._queues, self._root)
        flushed_time = self._checkpoint.times.log_timestamp if progress is None else 0
        files = self._log.files
        sealed = sealed_end(self._disk, self._root, files.file_size)
        flushed = max(sealed, flushed_end(self._disk, self._root, files))
        if files.last is not None:
            flushed = min(flushed, files.last.end)  # of files that are gone nothing can be put right
        evidence = Evidence(self._report.was_clean, flushed_time, self._disk.sector, flushed)
        sink = _Both(queues, index, self._go_on)
        walk = LogWalk(
            self._log, sink, evidence, healing.heal, delays=self._queues.delays,
            verify_body=self._config.check_crc_on_recover, on_file=self._report_file,
        )  # fmt: skip
        walk.run(begin)
        queues.check_deleted()
        return _Walk(walk, queues, index, healing, begin)

    def _index_rebuild(self, progress: Progress | None) -> IndexRebuild | None:
        if not self._config.message_index_enable:
            return None
        if progress is None:
            return IndexRebuild(self._index, self._log.begin, repair=True)
        time = 0
        if progress.index_next > 1:
            file = self._log.files.find(progress.index_end)
            if file is not None:
                record = outline(file.buffer, progress.index_end - file.begin, file.size, False, progress.index_end)
                time = record.store_timestamp if isinstance(record, Outline) else 0
        return IndexRebuild.after(
            self._index, progress.index_name, progress.index_next, time, was_clean=self._report.was_clean
        )

    def _announce_whole(self, reason: str) -> None:
        """Say why a start takes long: nothing is served before all of the log has been checked."""
        count = len(self._log.files.files)
        if reason and count > 1:
            self._on_progress(f"recovery: all {count} log files are checked before the store opens: {reason}")

    def _report_file(self, file: MappedFile) -> None:
        self._go_on()
        files = self._log.files.files
        number = files.index(file)
        self._on_progress(f"recovery: log file {offset_name(file.begin)}, {number + 1} of {len(files)}")

    # ---- the end

    def _finish(self, checked: _Walk, progress: Progress | None) -> None:
        self._go_on()
        report, walk = self._report, checked.walk
        report.walked_from, report.records = checked.begin, walk.count
        report.kept, report.losses = checked.healing.kept, walk.losses
        report.log_begin, report.log_end = self._log.begin, walk.end
        report.last = walk.last
        if report.last is None and progress is not None:
            report.last = self._last_of(progress)
        forget_flushed(self._disk, self._root, walk.end)
        report.cut_bytes = self._cut(walk.end)
        for loss in walk.losses:
            self._disk.remove(seal_path(self._root, loss.log_offset - loss.log_offset % self._log.file_size))
        drop_seals(self._disk, self._root, walk.end - walk.end % self._log.file_size)
        if report.cut_bytes:
            report.cut_why = walk.fault.value if walk.fault is not None else "after the last file"
        report.queues = checked.queues.finish(trim=progress is None or not report.was_clean)
        self._drop(checked.queues.gone)
        if checked.queues.strange_topics:
            report.notes.append(f"{len(checked.queues.strange_topics)} topics have names that get no queue")
        if checked.index is not None:
            report.index = checked.index.finish()
        self._flush(checked)
        report.is_saved = (
            progress is not None and report.was_clean and not report.changed and not report.gone and not walk.count
            and not self._checkpoint.was_missing
        )  # fmt: skip

    def _drop(self, gone: list[ConsumeQueue]) -> None:
        """Take queues of deleted topics out of the table; their files are deleted while the store is in use."""
        self._queues.drop(gone)
        for queue in gone:
            self._report.gone[queue.topic] = self._report.gone.get(queue.topic, 0) + 1

    def _last_of(self, progress: Progress) -> LastRecord:
        file = self._log.files.find(progress.record_offset)
        assert file is not None
        at = progress.record_offset - file.begin
        record = outline(file.buffer, at, file.size, False, progress.record_offset)
        assert isinstance(record, Outline)
        return LastRecord(progress.record_offset, record.size, record.store_timestamp)

    def _cut(self, end: int) -> int:
        """Zero everything after the end of the log and take later files out of it; returns how many bytes were not
        zero. All of them are kept aside first."""
        files, cut = self._log.files, 0
        while len(files.files) > 1 and files.files[-1].begin >= end:
            cut += self._take_out(files.files[-1])
        last = files.last
        if last is not None and end < last.end:
            at = max(end - last.begin, 0)
            self._report.kept += keep_aside(self._disk, self._root, last.begin + at, _pieces_from(last, at))
            cut += last.zero_from(at)
        self._log.open_at(end)
        return cut

    def _take_out(self, last: MappedFile) -> int:
        """Take the last file out of the log; returns how many of its bytes are not zero."""
        present = sum(len(piece) - piece.count(0) for _, piece in data_pieces(last, 0))
        if present:
            try:
                self._report.kept.append(set_aside(self._disk, self._root, last.begin, last.path))
            except OSError:
                self._report.kept += keep_aside(self._disk, self._root, last.begin, _pieces_from(last, 0))
        self._log.files.drop_last()
        return present

    def _flush(self, checked: _Walk) -> None:
        """Flush everything that was checked, so that it counts as flushed from here on."""
        self._on_progress("recovery: flushing")
        self._log.files.flush_of(checked.begin, self._log.end + 1)()
        self._disk.sync_directory(self._log.files.directory)
        queues = checked.queues.touched
        if len(queues) >= MANY and self._disk.sync_all(self._root):
            queues = {}
        for queue, at in queues.items():
            queue.files.flush_of(at, 1 << 62)()
            self._disk.sync_directory(queue.files.directory)
            queue.forget()
            if queue.ext is not None:
                queue.ext.files.flush_of(0, 1 << 62)()
        if checked.index is not None and (checked.index.count or self._report.index):
            for file in self._index.files:
                file.file.region.flush()
                file.flushed = file.table.next_entry
            self._disk.sync_directory(self._index.directory)


@dataclass(slots=True)
class _Walk:
    walk: LogWalk
    queues: QueueRebuild
    index: IndexRebuild | None
    healing: Healing
    begin: int


class _Both:
    """Gives what a walk finds to queues and index."""

    def __init__(self, queues: QueueRebuild, index: IndexRebuild | None, go_on: Callable[[], None]) -> None:
        self._queues = queues
        self._index = index
        self._go_on = go_on

    def records(self, batch: list[Found]) -> None:
        self._go_on()
        named = [tags_and_keys(record.properties) for _, record in batch]
        self._queues.add(batch, [tags for tags, _ in named])
        if self._index is not None:
            self._index.add(batch, [keys for _, keys in named])

    def columns(self, columns: RecordColumns) -> None:
        self._go_on()
        self._queues.add_columns(columns)
        if self._index is not None:
            self._index.add_columns(columns)

    def is_expected(self, record: Outline) -> bool:
        return self._queues.is_expected(record)


def _pieces_from(file: MappedFile, at: int) -> Iterator[bytes]:
    """What stands in a file from a place on, holes as zeros."""
    while at < (data := data_end(file, at) if at < file.size else 0):
        yield file.read_data(at, min(data - at, _PIECE))
        at += min(data - at, _PIECE)


def refuse_other_layouts(disk: Disk, root: str) -> None:
    """Stores that RocketMQ can make and that we cannot read."""
    if any(entry.name.startswith(DLEDGER_PREFIX) for entry in disk.entries(root)):
        raise CorruptStore(f"{root}: a DLedger store; only RocketMQ's plain files are served")
    if disk.exists(f"{root}/{CONSUME_QUEUE}/{ROCKSDB_MARKER}"):
        raise CorruptStore(f"{root}/{CONSUME_QUEUE}: queues in RocksDB (storeType); only plain files are served")


def load_log(disk: Disk, log: CommitLog) -> list[Oddity]:
    """Find the log's files. Short ones are extended to full length, missing ones are made; the walk judges."""
    reported: dict[str, Oddity] = {}
    for _ in range(3):
        odd = log.files.load()
        for oddity in odd:
            reported.setdefault(oddity.path, oddity)
        _refuse_other_size(log, odd)
        for oddity in odd:
            if oddity.what == "length" or (oddity.what == "gap" and oddity.size < log.file_size):
                disk.extend(oddity.path, log.file_size)
        gap = next((oddity for oddity in odd if oddity.what == "gap"), None)
        if gap is not None and not any(oddity.what == "length" for oddity in odd):
            _fill_gaps(disk, log, [oddity.begin for oddity in odd if oddity.what == "gap"])
        if not any(oddity.what != "foreign" for oddity in odd):
            break
    return [reported[path] for path in sorted(reported)]


def _refuse_other_size(log: CommitLog, odd: list[Oddity]) -> None:
    configured = log.file_size
    has_files = bool(log.files.files)
    for oddity in odd:
        name = oddity.path.rpartition("/")[2]
        other = oddity.what == "foreign" and parse_offset(name) is not None
        too_long = oddity.what != "foreign" and oddity.size > configured
        alone = oddity.what == "length" and oddity.size > 0 and not has_files and len(odd) == 1
        if other or too_long or alone:
            raise CorruptStore(
                f"{oddity.path} has {oddity.size} bytes, but mappedFileSizeCommitLog is {configured}: set it to the"
                " size that the files of this store have"
            )


def _fill_gaps(disk: Disk, log: CommitLog, begins: list[int]) -> None:
    place = log.files.files[-1].end
    for begin in begins:
        if begin - place > _MAX_MISSING * log.file_size:
            raise CorruptStore(
                f"{log.files.directory}/{offset_name(begin)}: too far behind the file before; move it away"
            )
        while place < begin:
            disk.create(f"{log.files.directory}/{offset_name(place)}", log.file_size)
            place += log.file_size
        place = begin + log.file_size
