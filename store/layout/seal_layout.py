"""A seal: a CRC-32C for each block of one full log file, in `rocketlet/seals/` under the log file's name.

    0   8  "ROCKSEAL"      12  4  block size           24  8  size of the log file      36  4 n  CRC-32C of each block
    8   4  version, 1      16  8  log offset           32  4  number of blocks n             4  CRC-32C of all before

BODYCRC covers bodies only, and is RocketMQ's; a seal covers every byte, headers, topics and properties too. It stands
apart because a foreign file in `commitlog/` stops a Java broker. A log file never changes once it is full, so a block
that does not match is damage. Big-endian. DO NOT CHANGE; a new layout takes a new version.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct, error

_HEAD = Struct(">8siiqqi")
_SUM = Struct(">I")
_MAGIC = b"ROCKSEAL"
_VERSION = 1
BLOCK_SIZE = 1 << 20

assert _HEAD.size == 36


@dataclass(frozen=True, slots=True)
class Seal:
    """The checksums of one log file."""

    log_offset: int
    file_size: int
    block_size: int
    sums: tuple[int, ...]

    def block(self, number: int) -> tuple[int, int]:
        """[begin, end) of a block inside the file."""
        begin = number * self.block_size
        return begin, min(begin + self.block_size, self.file_size)


def encode(seal: Seal) -> bytes:
    head = _HEAD.pack(_MAGIC, _VERSION, seal.block_size, seal.log_offset, seal.file_size, len(seal.sums))
    data = head + b"".join(map(_SUM.pack, seal.sums))
    return data + _SUM.pack(checksum(data))


def decode(data: bytes) -> Seal | None:
    """The seal in these bytes; None if there is none, or a damaged one."""
    try:
        magic, version, block_size, log_offset, file_size, count = _HEAD.unpack_from(data)
        sums = Struct(f">{count}I").unpack_from(data, _HEAD.size)
        stored_sum = _SUM.unpack_from(data, _HEAD.size + 4 * count)[0]
    except error:
        return None
    end = _HEAD.size + 4 * count
    if magic != _MAGIC or version != _VERSION or block_size <= 0 or len(data) != end + 4:
        return None
    if stored_sum != checksum(data[:end]) or count != -(-file_size // block_size):
        return None
    return Seal(log_offset, file_size, block_size, sums)


def checksum(data: bytes | memoryview) -> int:
    """CRC-32C."""
    from crc32c import crc32c  # 28 ms, and most commands do not need it

    return int(crc32c(data))


def seal_of(log_offset: int, file_size: int, read: Callable[[int, int], bytes], block_size: int = BLOCK_SIZE) -> Seal:
    """Seal a file, read block by block with `read(at, size)`."""
    places = range(0, file_size, block_size)
    sums = tuple(checksum(read(at, min(block_size, file_size - at))) for at in places)
    return Seal(log_offset, file_size, block_size, sums)


def broken_blocks(seal: Seal, read: Callable[[int, int], bytes]) -> Iterable[int]:
    """Numbers of the blocks of a file that do not match its seal."""
    for number, expected in enumerate(seal.sums):
        begin, end = seal.block(number)
        if checksum(read(begin, end - begin)) != expected:
            yield number
