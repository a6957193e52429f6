"""Truncating a returning replica's log: cutting off bytes that no leader has confirmed.

The decision is made while the store is open and carried out before it is opened again, so no view of the cut bytes
exists:

    intend   an intent, `rocketlet/truncation.json`, is made durable; the store is closed
    finish   1  the bytes to be cut are copied into a file of `rocketlet/cut/`, for inspection
             2  the progress point is deleted if it lies beyond the cut
             3  seals of what is cut and the log's later files are deleted, and the tail of the truncated one is zeroed
             4  the store is marked as not cleanly closed, so that recovery repairs queues and index
             5  deletions of topics that are noted at a later offset are moved to the cut
             6  the epochs are cut
             7  the intent is deleted

Every step may be repeated: after a crash `finish` starts again, and what was copied is not copied again. The store is
not opened while the intent exists.

Java: store/ha/autoswitch/AutoSwitchHAService.java#truncateInvalidMsg of 5.x, which leaves valid records behind
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from rocketlet.failover.own_state import OwnState, OwnStateFile
from rocketlet.store.checkpoint import read_progress
from rocketlet.store.config import StoreConfig
from rocketlet.store.deleted_topics import lower_deletions
from rocketlet.store.disk import Disk
from rocketlet.store.errors import CorruptStore
from rocketlet.store.layout.file_names import ABORT, CHECKPOINT, PROGRESS, offset_name, parse_offset
from rocketlet.store.mapped_file import MappedFile, data_pieces
from rocketlet.store.seal_files import drop_seals

log = logging.getLogger("rocketlet.failover.truncation")

INTENT = "rocketlet/truncation.json"
CUT = "rocketlet/cut"
MAX_CUT_FILES = 64  # files of cut bytes; the oldest one is deleted when there are more


class Intent(msgspec.Struct, frozen=True):
    """Cut the log at `cut`; its end was `end`, and `epoch` is that of the leader without the rest."""

    cut: int
    end: int
    epoch: int

    @property
    def name(self) -> str:
        """The name of the file for the cut bytes."""
        return f"{offset_name(self.cut)}-{self.end}-epoch{self.epoch}.log"


@dataclass(frozen=True, slots=True)
class CutFiles:
    """Cut bytes that are kept: number of files and bytes."""

    files: int = 0
    size: int = 0


def intend(disk: Disk, config: StoreConfig, intent: Intent) -> None:
    """Make it durable that the log is to be cut. Raises OSError."""
    disk.write_file(f"{config.store_path_root_dir}/{INTENT}", msgspec.json.encode(intent) + b"\n")


def finish(disk: Disk, config: StoreConfig, state_file: OwnStateFile, state: OwnState) -> OwnState:
    """Carry out the intent, if there is one. Returns the replica's state after it. REQUIRES a closed store.

    Raises OSError, CorruptStore.
    """
    root = config.store_path_root_dir
    data = disk.read_file(f"{root}/{INTENT}")
    if data is None:
        return state
    try:
        intent = msgspec.json.decode(data, type=Intent)
    except msgspec.DecodeError as error:
        raise CorruptStore(f"{root}/{INTENT} cannot be read: {error}") from error
    copy = f"{root}/{CUT}/{intent.name}"
    if not disk.exists(copy):
        _copy_cut_bytes(disk, config, intent, copy)
    progress = read_progress(disk, root)
    if progress is not None and progress.log_offset > intent.cut:
        disk.remove(f"{root}/{PROGRESS}")
    disk.write_file(f"{root}/{ABORT}", b"")
    if not intent.cut:
        disk.remove(f"{root}/{CHECKPOINT}")  # left in place, it would keep a store without a log from being opened
    # These would prove that the cut bytes were in the log, and recovery would put lost records in their place.
    drop_seals(disk, root, intent.cut - intent.cut % config.mapped_file_size_commit_log)
    _cut(disk, config, intent.cut)
    lower_deletions(disk, root, intent.cut)
    state = replace(state, epochs=state.epochs.cut(intent.cut))
    state_file.write(state)
    disk.remove(f"{root}/{INTENT}")
    disk.sync_directory(f"{root}/rocketlet")
    log.warning(
        "cut the log at %d: %d bytes that no leader confirmed are kept in %s", intent.cut, intent.end - intent.cut, copy
    )
    return state


def cut_files(disk: Disk, config: StoreConfig) -> CutFiles:
    """How much was cut off and kept."""
    entries = disk.entries(f"{config.store_path_root_dir}/{CUT}")
    return CutFiles(len(entries), sum(entry.size for entry in entries))


def _log_files(disk: Disk, config: StoreConfig) -> list[MappedFile]:
    """The log's files, in order; files of another length are what a crash left of the newest, and hold no record."""
    directory, size = config.commit_log_path, config.mapped_file_size_commit_log
    return [
        MappedFile(disk, f"{directory}/{entry.name}", begin, size)
        for entry in disk.entries(directory)
        if (begin := parse_offset(entry.name)) is not None and entry.size == size
    ]


def _copy_cut_bytes(disk: Disk, config: StoreConfig, intent: Intent, path: str) -> None:
    """Copy the bytes to be cut, unchanged."""
    part = f"{path}.part"
    if disk.exists(part):
        disk.remove(part)
    directory = path.rpartition("/")[0]
    previous = sorted((disk.modified(f"{directory}/{entry.name}"), entry.name) for entry in disk.entries(directory))
    for _, name in previous[: max(len(previous) + 1 - MAX_CUT_FILES, 0)]:
        disk.remove(f"{directory}/{name}")
    region = disk.create(part, max(intent.end - intent.cut, 1))
    for offset, piece in _pieces(_log_files(disk, config), intent.cut, intent.end):
        at = offset - intent.cut
        region.reserve(at, at + len(piece))
        region.buffer[at : at + len(piece)] = piece
    region.flush()
    disk.rename(part, path)
    disk.sync_directory(directory)
    disk.sync_directory(directory.rpartition("/")[0])


def _pieces(files: list[MappedFile], begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    for file in files:
        if file.end <= begin or file.begin >= end:
            continue
        for at, piece in data_pieces(file, max(begin - file.begin, 0)):
            offset = file.begin + at
            if offset >= end:
                break
            yield offset, piece[: end - offset]


def _cut(disk: Disk, config: StoreConfig, cut: int) -> None:
    directory = config.commit_log_path
    for entry in reversed(disk.entries(directory)):
        begin = parse_offset(entry.name)
        if begin is not None and begin >= cut:
            disk.remove(f"{directory}/{entry.name}")
    for file in _log_files(disk, config):
        if file.begin < cut < file.end:
            file.zero_from(cut - file.begin)
            file.region.flush()
    disk.sync_directory(directory)
