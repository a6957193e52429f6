"""Where seals lie (store/layout/seal_layout.py has their bytes) and how they are dropped when their file changed.

Java: (none)
"""

from __future__ import annotations

from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import SEALS, offset_name, parse_offset


def seal_path(root: str, log_offset: int) -> str:
    return f"{root}/{SEALS}/{offset_name(log_offset)}"


def drop_seals(disk: Disk, root: str, log_offset: int = 0) -> None:
    """Forget the seals of log files from an offset on: those files are not what they were."""
    for entry in disk.entries(f"{root}/{SEALS}"):
        if (offset := parse_offset(entry.name)) is not None and offset >= log_offset:
            disk.remove(f"{root}/{SEALS}/{entry.name}")
