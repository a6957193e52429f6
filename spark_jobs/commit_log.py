"""The part of a store's log that a job reads: its segments, where their data ends, and their splits.

The driver determines it once, before the job starts; every executor then reads up to the same ends, so a store may be
written to meanwhile. A store with an `abort` file (a broker runs on it, or crashed) is taken up to the log's good end:
in the last segment with data the records are followed from the start, and what does not follow is left to the broker.

Without `abort` a reader continues after a damage of the last segment, unless what follows is older than what precedes
it: then it is a leftover from when a broker cut the log, which moves the end and wipes nothing.

Java: store/MappedFileQueue.java
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rocketlet.common.message_record import BLANK_SIZE
from rocketlet.spark_jobs.files import Entry, SeveralStores, StoreNotFound, list_folder, read_range
from rocketlet.spark_jobs.segment_rows import Found, Stretch, find_records, heads_at
from rocketlet.store.layout.file_names import (
    ABORT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    DLEDGER_PREFIX,
    ROCKSDB_MARKER,
    parse_offset,
)
from rocketlet.store.layout.log_scan import Damage, last_nonzero

DEFAULT_SPLIT = 64 << 20
_OVERHANG = 256 << 10  # read after a split for its last record; a longer one costs a second read
_WINDOW = 16 << 20
_ZEROS_OF_A_RECORD = 64 << 10
_STALE = "left over from before the log was cut: older than the record before it"
_NOT_FOLLOWED = "after the valid end of a log that is being written or was not closed"


@dataclass(slots=True, frozen=True)
class Segment:
    """One file of the log: data up to `end`, followed by zeros or nothing of interest."""

    path: str
    base: int
    size: int
    end: int
    is_ledger: bool = False

    @property
    def end_offset(self) -> int:
        return self.base + self.end


@dataclass(slots=True, frozen=True)
class LogDamage:
    """A stretch of the log without a readable, trustworthy record."""

    path: str
    log_offset: int
    size: int
    reason: str


@dataclass(slots=True, frozen=True)
class Split:
    """A part of a segment: the records that begin in [start, stop). `at_record` says that one begins at start."""

    segment: Segment
    start: int
    stop: int
    at_record: bool


@dataclass(slots=True)
class CommitLog:
    """The segments in order, and the damage that shows without looking into them."""

    segments: list[Segment]
    damages: list[LogDamage] = field(default_factory=list)
    is_open: bool = False
    has_rocksdb_queues: bool = False

    @property
    def bytes(self) -> int:
        return sum(segment.end for segment in self.segments)

    @property
    def begin_offset(self) -> int:
        return self.segments[0].base if self.segments else 0

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    def splits(self, size: int = DEFAULT_SPLIT) -> list[Split]:
        """All of the log in parts of at most that size; none crosses a file."""
        return [
            Split(segment, start, min(start + size, segment.end), start == 0)
            for segment in self.segments
            for start in range(0, segment.end, size)
        ]


def grouped(splits: list[Split], partitions: int) -> list[tuple[Split, ...]]:
    """The splits in their order, in at most that many groups of about equal bytes."""
    total = sum(split.stop - split.start for split in splits)
    groups: list[list[Split]] = [[] for _ in range(max(partitions, 1))]
    size_so_far = 0
    for split in splits:
        groups[min(size_so_far * len(groups) // max(total, 1), len(groups) - 1)].append(split)
        size_so_far += split.stop - split.start
    return [tuple(group) for group in groups if group]


def log_folders(path: str) -> list[str]:
    """The folders of log files below a path: a store, its commitlog, or several commitlogs separated by commas."""
    folders = []
    for root in store_roots(path):
        names = {entry.name for entry in list_folder(root) if entry.is_folder}
        ledgers = sorted(name for name in names if name.startswith(DLEDGER_PREFIX))
        if COMMIT_LOG in names:
            folders.append(f"{root}/{COMMIT_LOG}")
        folders += [f"{root}/{name}/data" for name in ledgers]
        if COMMIT_LOG not in names and not ledgers:
            folders.append(root)
    return folders


def store_roots(path: str) -> list[str]:
    """The parts of a path; for the directory of `rocketlet up`, which is no store, the store of its broker.

    Raises SeveralStores.
    """
    return [_store_root(part.strip().rstrip("/") or "/") for part in path.split(",")]


def _store_root(root: str) -> str:
    entries = list_folder(root)
    if _is_store(entries) or any(parse_offset(entry.name) is not None for entry in entries):
        return root
    folders = [f"{root}/{entry.name}" for entry in entries if entry.is_folder]
    below = [folder for folder in folders if _is_store(list_folder(folder))]
    if len(below) > 1:
        raise SeveralStores(f"{root}: several stores there, choose one: {', '.join(below)}")
    return below[0] if below else root


def _is_store(entries: list[Entry]) -> bool:
    names = [entry.name for entry in entries if entry.is_folder]
    return any(name == COMMIT_LOG or name.startswith(DLEDGER_PREFIX) for name in names)


def find_commit_log(path: str, *, tail: str = "auto") -> CommitLog:
    """Look at a store. `tail` is auto (see above), `stop` (as for a store with `abort`) or `through` (read all).

    Raises StoreNotFound.
    """
    log = list_segments(path)
    _find_end(log, tail)
    return log


def list_segments(path: str) -> CommitLog:
    """The files of a log, each as if it were full. Raises StoreNotFound."""
    folders = log_folders(path)
    files = [(folder, entry) for folder in folders for entry in list_folder(folder) if not entry.is_folder]
    is_log_folder = [folder.endswith(f"/{COMMIT_LOG}") for folder in folders]
    if not any(parse_offset(entry.name) is not None for _, entry in files) and not any(is_log_folder):
        raise StoreNotFound(
            f"there is no store at {path}, no log files below it: give the store's root or its commitlog folder, as"
            " every executor sees it"
        )
    roots = set(store_roots(path)) | {posixpath.dirname(folder) for folder in folders}
    log = CommitLog([])
    for root in roots:
        log.is_open |= any(entry.name == ABORT for entry in list_folder(root))
        queues = list_folder(f"{root}/{CONSUME_QUEUE}")
        log.has_rocksdb_queues |= any(entry.name == ROCKSDB_MARKER for entry in queues)
    _take_segments(log, files)
    return log


def _take_segments(log: CommitLog, files: list[tuple[str, Entry]]) -> None:
    """The files that are segments, in order; foreign and odd ones and missing offsets are damages."""
    full = max((entry.size for _, entry in files if parse_offset(entry.name) is not None), default=0)
    newest = max((base for _, entry in files if (base := parse_offset(entry.name)) is not None), default=-1)
    for folder, entry in files:
        base, path = parse_offset(entry.name), f"{folder}/{entry.name}"
        if base is None:
            log.damages.append(LogDamage(path, -1, entry.size, "a foreign file, which stops a Java broker"))
            continue
        is_being_made = log.is_open and base == newest and not entry.size
        if entry.size != full and not is_being_made:
            short = full - entry.size
            log.damages.append(LogDamage(path, base + entry.size, short, f"the file is {short} bytes too short"))
        is_ledger = DLEDGER_PREFIX in folder
        log.segments.append(Segment(path, base, entry.size, entry.size, is_ledger))
    log.segments.sort(key=lambda segment: segment.base)
    for first, following in pairwise(log.segments):
        missing = following.base - first.base - full
        if missing > 0:
            log.damages.append(LogDamage(first.path, first.base + full, missing, "missing segments"))


def _find_end(log: CommitLog, tail: str) -> None:
    """Remove empty segments at the end, and find where data ends in the last one that has any."""
    while log.segments:
        last = log.segments.pop()
        data_end = _data_end(last)
        if data_end:
            break
    else:
        return
    followed = _follow(last, data_end)
    end = max(data_end, followed.end)  # a record may end with zeros
    fault = followed.fault
    if fault is not None and tail != "through":
        reason = ""
        if log.is_open or tail == "stop":
            reason = _NOT_FOLLOWED
        elif _is_stale(last, followed, end):
            reason = _STALE
        if reason and log.is_open and _store_time(last, fault.at) is not None:
            end = fault.at  # it was being written, and by now it is whole
        elif reason:
            text = f"{reason} ({fault.fault.value})"
            log.damages.append(LogDamage(last.path, last.base + fault.at, end - fault.at, text))
            end = fault.at
    if end:
        log.segments.append(replace(last, end=end))


def _data_end(segment: Segment) -> int:
    """After the last byte that is not zero; searched from the end."""
    end = segment.size
    while end:
        start = max(0, end - _WINDOW)
        data = read_range(segment.path, start, end - start)
        place = last_nonzero(data, 0, len(data))
        if place >= 0:
            return start + place + 1
        end = start
    return 0


@dataclass(slots=True)
class _Followed:
    """How far the records of a segment follow one another: the last of them, and the first damage, if any."""

    end: int = 0
    last_record: int = -1
    fault: Damage | None = None


def _follow(segment: Segment, data_end: int) -> _Followed:
    """From the segment's start up to its first damage. Bodies are not checked: a bad one does not end the chain."""
    # A record may end with zeros, so look a little beyond the last byte that is not zero.
    segment = replace(segment, end=min(segment.size, data_end + _ZEROS_OF_A_RECORD))
    followed = _Followed()
    while followed.end < segment.end:
        start = followed.end
        _, result = read_split(Split(segment, start, min(start + _WINDOW, segment.end), True))
        places = result.places + start
        if result.damages:
            fault = result.damages[0]
            followed.fault = Damage(fault.at + start, fault.size, fault.fault)
            places = places[places < followed.fault.at]
        if len(places):
            followed.last_record = int(places[-1])
        followed.end = start + result.end
        if result.blank:
            followed.end = min(followed.end + BLANK_SIZE, segment.size)
        if result.damages or result.blank or not len(places):
            break
    return followed


def _is_stale(segment: Segment, followed: _Followed, end: int) -> bool:
    """Whether the first record after the damage is older than the last one before it."""
    assert followed.fault is not None  # the caller saw it
    damage_end = followed.fault.at + followed.fault.size
    if followed.last_record < 0 or damage_end >= end:
        return False
    previous_time, next_time = _store_time(segment, followed.last_record), _store_time(segment, damage_end)
    return next_time is not None and previous_time is not None and next_time < previous_time


def _store_time(segment: Segment, place: int) -> int | None:
    data, result = read_split(Split(segment, place, place + 1, True))
    return int(heads_at(data, result.places[:1]).store_timestamp[0]) if result.places.size else None


def read_split(split: Split, *, verify_body: bool = False) -> tuple[bytearray, Found]:
    """The bytes from a split's start on, as many as its last record needs, and its records, all inside these bytes."""
    segment, start = split.segment, split.start
    overhang = _OVERHANG
    while True:
        size = min(split.stop - start + overhang, segment.size - start)
        data = read_range(segment.path, start, size)
        stretch = Stretch(
            data, segment.base + start, 0, split.stop - start, segment.end - start, segment.size - start,
            split.at_record, segment.is_ledger,
        )  # fmt: skip
        if len(data) < size:
            # A live store deleted or cut the file meanwhile: use what is there.
            stretch.end = min(stretch.end, len(data))
        result = find_records(stretch, verify_body)
        if result is not None:
            return data, result
        overhang *= 16


def first_store_time(segment: Segment) -> int | None:
    """When the first record of a segment was stored; None where it does not begin with a whole one."""
    return _store_time(segment, 0)
