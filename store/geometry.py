"""The sizes with which a store's files were made, derived from the files: for tools that only have a directory.

Log, queue and extension files have one length each. How an index file divides into slots and entries is not recorded:
for files of RocketMQ's default size it is known, for others the first entry is searched for, whose hash and log offset
follow from the record that the header names.

Java: (none)
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace

from rocketlet.common.java_numbers import index_hash, utf8_hash
from rocketlet.common.message_properties import index_keys
from rocketlet.common.message_record import Outline, outline
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.errors import CorruptStore
from rocketlet.store.layout.file_names import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    parse_index_name,
    parse_offset,
)
from rocketlet.store.layout.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexGeometry, decode_header

_SEARCHED = 64 << 20


def found_config(disk: Disk, config: StoreConfig) -> StoreConfig:
    """The settings with the sizes that the files of its directory have."""
    root = config.store_path_root_dir
    log_size = _length(disk, [config.store_path_commit_log or f"{root}/{COMMIT_LOG}"])
    queue_size = _length(disk, _queue_folders(disk, f"{root}/{CONSUME_QUEUE}"))
    ext_size = _length(disk, _queue_folders(disk, f"{root}/{CONSUME_QUEUE_EXT}"))
    config = replace(
        config,
        mapped_file_size_commit_log=log_size or config.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=queue_size or config.mapped_file_size_consume_queue,
        mapped_file_size_consume_queue_ext=ext_size or config.mapped_file_size_consume_queue_ext,
    )
    geometry = _index_geometry(disk, config)
    if geometry is None:
        return config
    return replace(config, max_hash_slot_num=geometry.slots, max_index_num=geometry.entries)


def _length(disk: Disk, folders: list[str]) -> int:
    """The length that most files in these folders have; 0 where there is none."""
    lengths = Counter(
        entry.size
        for folder in folders
        for entry in disk.entries(folder)
        if entry.size and parse_offset(entry.name) is not None
    )
    return max(lengths, key=lambda size: (lengths[size], size)) if lengths else 0


def _queue_folders(disk: Disk, folder: str) -> list[str]:
    return [
        f"{folder}/{topic.name}/{queue.name}"
        for topic in disk.entries(folder)
        for queue in disk.entries(f"{folder}/{topic.name}")
    ]


def _index_geometry(disk: Disk, config: StoreConfig) -> IndexGeometry | None:
    """How the index files divide; None where the settings fit or where it cannot be determined."""
    folder = f"{config.store_path_root_dir}/{INDEX}"
    files = [entry for entry in disk.entries(folder) if parse_index_name(entry.name) is not None]
    if not files:
        return None
    size = max(entry.size for entry in files)
    if size == IndexGeometry(config.max_hash_slot_num, config.max_index_num).file_size or size > _SEARCHED:
        return None
    for entry in files:
        if entry.size == size:
            buffer = disk.open_private(f"{folder}/{entry.name}", size).buffer
            geometry = _divided(bytes(buffer), _keys_at(disk, config, decode_header(buffer).begin_log_offset))
            if geometry is not None:
                return geometry
    return None


def _keys_at(disk: Disk, config: StoreConfig, log_offset: int) -> list[bytes]:
    """What the index entries of a record begin with: hash and log offset."""
    size = config.mapped_file_size_commit_log
    begin = log_offset - log_offset % size
    path = f"{config.commit_log_path}/{begin:020d}"
    if not disk.exists(path):
        return []
    record = outline(disk.open_private(path, size).buffer, log_offset - begin, size, False, log_offset)
    if not isinstance(record, Outline):
        return []
    hashes = [index_hash(utf8_hash(record.topic + b"#" + key)) for key in index_keys(record.properties)]
    return [struct.pack(">iq", key_hash, log_offset) for key_hash in hashes]


def _divided(data: bytes, keys: list[bytes]) -> IndexGeometry | None:
    for key in keys:
        at = data.find(key, HEADER_SIZE + SLOT_SIZE)
        while at >= 0:
            entries_at = at - ENTRY_SIZE
            slots, slot_remainder = divmod(entries_at - HEADER_SIZE, SLOT_SIZE)
            entries, entry_remainder = divmod(len(data) - entries_at, ENTRY_SIZE)
            if slots > 0 and entries > 1 and not slot_remainder and not entry_remainder:
                return IndexGeometry(slots, entries)
            at = data.find(key, at + 1)
    return None


# One of these is in the root directory of every store, RocketMQ's too.
_FOLDERS = {COMMIT_LOG, CONSUME_QUEUE, INDEX}
_FILES = {CHECKPOINT, ABORT, LOCK}


def is_store(disk: Disk, root: str) -> bool:
    """Whether a directory is the root of a store."""
    return any(entry.name in (_FOLDERS if entry.is_directory else _FILES) for entry in disk.entries(root))


def check_is_store(disk: Disk, root: str) -> None:
    """Raises CorruptStore where there is none, with where there may be one."""
    if is_store(disk, root):
        return
    below = _stores_below(disk, root)
    advice = f"; there is one in {', '.join(below)}" if below else ""
    raise CorruptStore(f"{root}: no store there{advice}")


def store_in(disk: Disk, directory: str) -> str:
    """The root of the store in a directory, or in the one of its directories that is a store.

    Raises CorruptStore where there is none, or more than one.
    """
    root = directory.rstrip("/") or "/"
    if is_store(disk, root):
        return root
    below = _stores_below(disk, root)
    if len(below) > 1:
        raise CorruptStore(f"{root}: several stores there, choose one: {', '.join(below)}")
    check_is_store(disk, below[0] if below else root)
    return below[0]


def _stores_below(disk: Disk, root: str) -> list[str]:
    names = [f"{root}/{entry.name}" for entry in disk.entries(root) if entry.is_directory]
    return [path for path in names if is_store(disk, path)]
