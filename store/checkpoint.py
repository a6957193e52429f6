"""The two small files that say how far everything is on disk.

`checkpoint` is RocketMQ's, times only (store/layout/checkpoint_layout.py), so that a Java broker recovers a store of
ours as it does its own. `rocketlet/progress.json` is ours and says it by offset: every record before `log_offset` is
durable in the log, in its queue and in the index. A recovery begins there. To be believed after another program had
the store, it names the last record before that offset with a checksum: a log that was cut and rewritten by another
program does not match it, and then everything is checked.

Written only after the flushes that make it true; a missing or unreadable one is no error, only a longer recovery.

Java: store/StoreCheckpoint.java
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields

import msgspec

from rocketlet.common.crc import crc32
from rocketlet.store.disk import Disk, Region
from rocketlet.store.layout import checkpoint_layout
from rocketlet.store.layout.checkpoint_layout import Checkpoint
from rocketlet.store.layout.file_names import CHECKPOINT, PROGRESS

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything before `log_offset` is durable in log, queues and index."""

    log_offset: int
    record_offset: int  # of the last record before it; -1 where there is none
    record_size: int
    record_crc: int
    index_name: int  # number of the newest index file, 0 where there is none
    index_next: int  # its next entry
    index_end: int  # log offset of its last entry
    queues: dict[str, int] = field(default_factory=dict)  # end of each queue, by topic/queue id


class CheckpointFile:
    """The `checkpoint` file. Its numbers are changed in place and become durable by `write`."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._region: Region | None = None
        self.times = Checkpoint()
        self.was_missing = False

    def load(self) -> None:
        data = self._disk.read_file(f"{self._root}/{CHECKPOINT}")
        self.was_missing = data is None
        self.times = checkpoint_layout.decode(data or b"")

    def write(self) -> None:
        """Waits for the disk. Bytes that later RocketMQ versions keep after ours stay."""
        path = f"{self._root}/{CHECKPOINT}"
        if self._region is None:
            size = checkpoint_layout.FILE_SIZE
            if self._disk.exists(path):
                self._disk.extend(path, size)
                self._region = self._disk.open(path)
            else:
                self._region = self._disk.create(path, size)
                self._disk.sync_directory(self._root)
        data = checkpoint_layout.encode(self.times)
        self._region.reserve(0, len(data))
        self._region.buffer[: len(data)] = data
        self._region.flush()


def checksum(record: bytes | memoryview) -> int:
    """Of the last record before a progress point."""
    return crc32(record)


def write_progress(disk: Disk, root: str, progress: Progress) -> None:
    """Waits for the disk."""
    # 65,535 queues take msgspec 2 ms, and the standard library 17, in which the loop too waits for the interpreter.
    values = {one.name: getattr(progress, one.name) for one in fields(progress)}
    disk.write_file(f"{root}/{PROGRESS}", msgspec.json.encode({"version": _VERSION, **values}) + b"\n")


def read_progress(disk: Disk, root: str) -> Progress | None:
    data = disk.read_file(f"{root}/{PROGRESS}")
    if data is None:
        return None
    try:
        values = json.loads(data)
        if values.pop("version") != _VERSION:
            return None
        return Progress(**values)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # torn, or of another version: the recovery reads everything instead
