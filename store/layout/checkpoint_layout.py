"""The checkpoint file: the times up to which log, queues and index are known to be on disk.

    0   8  store time of the newest record flushed         24  8  master flushed offset (5.0+; 0 here)
    8   8  store time of the newest queue entry            32  8  confirmed log offset (5.1+; 0 here)
    16  8  end time of the newest index file that is full and flushed          zeros up to 4096

Zeros are always safe: a recovery then starts at the first file. A time ahead of flushed data never is.

Java: store/StoreCheckpoint.java
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

FILE_SIZE = 4096
_LONGS = Struct(">5q")


@dataclass(slots=True)
class Checkpoint:
    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0


def decode(buffer: bytes | bytearray | memoryview) -> Checkpoint:
    """A file that is shorter, as a crash while it was made can leave it, counts as zeros."""
    if len(buffer) < _LONGS.size:
        return Checkpoint()
    return Checkpoint(*_LONGS.unpack_from(buffer))


def encode(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    return _LONGS.pack(
        checkpoint.log_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirmed_offset,
    ).ljust(FILE_SIZE, b"\0")
