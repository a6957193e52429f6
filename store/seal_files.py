"""Where seals lie (store/layout/seal_layout.py has their bytes) and how they are dropped when their file changed.

Java: (none)
"""

from __future__ import annotations

from rocketlet.store.disk import Disk
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.file_names import SEALS, offset_name, parse_offset
from rocketlet.store.layout.seal_layout import Seal
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.mapped_file_queue import MappedFileQueue


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


def drop_foreign_seals(disk: Disk, root: str, files: MappedFileQueue) -> None:
    """Forget the seals of log files that another program may have written.

    It would have cut the log somewhere and gone on from there. So a file whose end is as it was sealed was not
    written again, whatever is damaged in it, and none before it was.
    """
    for entry in reversed(disk.entries(f"{root}/{SEALS}")):
        seal = seal_layout.decode(disk.read_file(f"{root}/{SEALS}/{entry.name}") or b"")
        if seal is None or parse_offset(entry.name) != seal.log_offset:
            continue
        file = files.find(seal.log_offset)
        if file is not None and file.begin == seal.log_offset and _ends_as_sealed(file, seal):
            drop_seals(disk, root, file.end)
            return
    drop_seals(disk, root)


def _ends_as_sealed(file: MappedFile, seal: Seal) -> bool:
    """Whether the last block that holds anything has its checksum."""
    if file.size != seal.file_size:
        return False
    for number in reversed(range(len(seal.sums))):
        begin, end = seal.block(number)
        block = file.region.read(begin, end - begin)
        if block.count(0) < len(block):
            return seal_layout.checksum(block) == seal.sums[number]
    return False


def sealed_end(disk: Disk, root: str, file_size: int) -> int:
    """The end of the last log file of this size that was sealed; 0 without one. All before it was flushed once."""
    for entry in reversed(disk.entries(f"{root}/{SEALS}")):
        seal = seal_layout.decode(disk.read_file(f"{root}/{SEALS}/{entry.name}") or b"")
        if seal is not None and seal.file_size == file_size and parse_offset(entry.name) == seal.log_offset:
            return seal.log_offset + file_size
    return 0
