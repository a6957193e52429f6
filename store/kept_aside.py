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

_LARGEST = 64 << 20  # more than any damage of a few records
_MOST = 1 << 30  # bytes of all that is kept


def keep_aside(disk: Disk, root: str, log_offset: int, pieces: Iterable[bytes]) -> str | None:
    """Keep what stood there; returns where. None where there was nothing, or where no room is left for it."""
    data, is_all = bytearray(), True
    for piece in pieces:
        is_all = len(data) + len(piece) <= _LARGEST
        data += piece[: _LARGEST - len(data)]
        if not is_all:
            break
    content = bytes(data.rstrip(b"\0"))
    if not content:
        return None
    present = disk.entries(f"{root}/{DAMAGED}")
    names = {entry.name for entry in present}
    number = 0
    while (name := f"{offset_name(log_offset)}-{number}") in names:
        number += 1
    path = f"{root}/{DAMAGED}/{name}"
    if sum(entry.size for entry in present) + len(content) > _MOST:
        _log.error("%s is not kept: %s is full; move away what is in it", path, DAMAGED)
        return None
    try:
        disk.write_file(path, content)
    except OSError as error:  # a full disk must not keep the store from being opened
        _log.error("%s cannot be kept: %s", path, error.strerror)
        return None
    if not is_all:
        _log.error("%s has only the first %d bytes of what stood there; the rest is not kept", path, _LARGEST)
    return path
