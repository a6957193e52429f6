"""Names of files and folders of a store: made and parsed here, and nowhere else.

A file of the log or of a queue is named after the offset of its first byte, zero-padded to 20 digits. An index file is
named after the local time at which it was made. A foreign name in those folders keeps a Java broker from starting, so
nothing else may ever be put there.

Java: common/UtilAll.java#offset2FileName, store/config/StorePathConfigHelper.java
"""

from __future__ import annotations

from typing import Final

from rocketlet.common.moment import moment_of

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"

# A directory of our own beside RocketMQ's: it may be deleted at any time, and a Java broker never reads it.
OWN: Final = "rocketlet"
SEALS: Final = f"{OWN}/seals"
TOMBSTONES: Final = f"{OWN}/tombstones.json"
DAMAGED: Final = f"{OWN}/damaged"
PROGRESS: Final = f"{OWN}/progress.json"
FLUSHED: Final = f"{OWN}/flushed"

BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"  # 5.x
DLEDGER_PREFIX: Final = "dledger-"  # dledger-<self id>/data
ROCKSDB_MARKER: Final = "CURRENT"  # present in consumequeue/ where RocksDB keeps the queues (5.2+)

NAME_LENGTH: Final = 20


def offset_name(offset: int) -> str:
    """`00000000001073741824` for 2^30."""
    return f"{offset:020d}"


def parse_offset(name: str) -> int | None:
    """The offset of a name, or None where it is no name of a log or queue file."""
    return int(name) if len(name) == NAME_LENGTH and name.isascii() and name.isdigit() else None


def index_name(now: int) -> str:
    """`20231114221320123`: local time to the millisecond, as Java has it."""
    return f"{moment_of(now):%Y%m%d%H%M%S}{now % 1000:03d}"


def parse_index_name(name: str) -> int | None:
    """The number of an index file's name (its order), or None where it is no such name."""
    return int(name) if len(name) == 17 and name.isascii() and name.isdigit() else None


def commit_log_path(offset: int) -> str:
    return f"{COMMIT_LOG}/{offset_name(offset)}"


def queue_folder(topic: str, queue_id: int) -> str:
    """REQUIRES: the topic's name was checked (`common.topic`), for it becomes a part of a path."""
    return f"{CONSUME_QUEUE}/{topic}/{queue_id}"


def queue_ext_folder(topic: str, queue_id: int) -> str:
    return f"{CONSUME_QUEUE_EXT}/{topic}/{queue_id}"
