"""`rocketlet/damaged/<log offset>-<n>`: the bytes that an opening took out of the log, because they were damaged or lay
after its end. For people; nothing reads them.

Java: (none)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import DAMAGED, offset_name

_log = logging.getLogger("rocketlet.store.kept_aside")

_LARGEST = 64 << 20  # bytes that are read and written at once
_SPARE = 64 << 20  # bytes that stay free on the disk


def keep_aside(disk: Disk, root: str, log_offset: int, pieces: Iterable[bytes]) -> list[str]:
    """Keep what stood from there on, in one file or more, without the zeros at their ends; returns their paths. A line
    tells of what there is no room for: a full disk must not keep the store from being opened."""
    kept, part = list[str](), bytearray()
    for piece in pieces:
        part += piece
        while len(part) >= _LARGEST:
            kept += _keep(disk, root, log_offset, bytes(part[:_LARGEST]))
            del part[:_LARGEST]
            log_offset += _LARGEST
    return kept + _keep(disk, root, log_offset, bytes(part))


def set_aside(disk: Disk, root: str, log_offset: int, path: str) -> str:
    """Keep a whole file of the log by moving it, which needs no room; returns where. Raises OSError, with the file
    where it was: the log may be on another disk."""
    new_path = _free_path(disk, root, log_offset)
    disk.rename(path, new_path)
    disk.sync_directory(f"{root}/{DAMAGED}")
    return new_path


def _keep(disk: Disk, root: str, log_offset: int, data: bytes) -> list[str]:
    content = data.rstrip(b"\0")
    if not content:
        return []
    path = _free_path(disk, root, log_offset)
    if disk.usage(root).free < len(content) + _SPARE:
        _log.error("%d bytes are not kept in %s: the disk is too full; they are lost", len(content), path)
        return []
    try:
        disk.write_file(path, content)
    except OSError as error:
        _log.error("%s cannot be kept: %s", path, error.strerror)
        return []
    return [path]


def _free_path(disk: Disk, root: str, log_offset: int) -> str:
    names = {entry.name for entry in disk.entries(f"{root}/{DAMAGED}")}
    number = 0
    while (name := f"{offset_name(log_offset)}-{number}") in names:
        number += 1
    return f"{root}/{DAMAGED}/{name}"
