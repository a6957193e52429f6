"""Where seals lie (store/layout/seal_layout.py has their bytes) and how they are dropped when their file changed.

Java: (none)
"""

from __future__ import annotations

from rocketlet.store.disk import Disk
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.file_names import SEALS, offset_name, parse_offset


def seal_path(root: str, log_offset: int) -> str:
    return f"{root}/{SEALS}/{offset_name(log_offset)}"


def drop_seals(disk: Disk, root: str, log_offset: int = 0) -> None:
    """Forget, durably, the seals of log files from an offset on: those files are not what they were."""
    dropped = False
    for entry in disk.entries(f"{root}/{SEALS}"):
        if (offset := parse_offset(entry.name)) is not None and offset >= log_offset:
            disk.remove(f"{root}/{SEALS}/{entry.name}")
            dropped = True
    if dropped:
        disk.sync_directory(f"{root}/{SEALS}")


def sealed_end(disk: Disk, root: str, file_size: int) -> int:
    """The end of the last log file of this size that was sealed; 0 without one. All before it was flushed once."""
    for entry in reversed(disk.entries(f"{root}/{SEALS}")):
        seal = seal_layout.decode(disk.read_file(f"{root}/{SEALS}/{entry.name}") or b"")
        if seal is not None and seal.file_size == file_size and parse_offset(entry.name) == seal.log_offset:
            return seal.log_offset + file_size
    return 0
