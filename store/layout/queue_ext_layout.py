"""Units of a queue's extension files (`enableConsumeQueueExt`), which keep a bit map of SQL filters per message.

    0   2  size of the unit      2   8  tags code      10  8  store timestamp      18  2  bytes of the bit map, then it

The queue entry then holds an address in place of its tags code: the unit's offset in the ext files with the top bit
set, which no 32-bit hash has. A unit never crosses a file: where fewer than 4 bytes would stay free, a size
of -1 ends the file.

Java: store/ConsumeQueueExt.java
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from rocketlet.common.java_numbers import INT32_MAX

HEAD = Struct(">hqqh")
HEAD_SIZE = HEAD.size
END_MARK = Struct(">h").pack(-1)
KEPT_FREE = 4
MAX_UNIT_SIZE = 32767
DEFAULT_FILE_SIZE = 48 << 20

_TOP = -(1 << 63)
_HIGHEST_ADDRESS = -INT32_MAX - 2

assert HEAD_SIZE == 20


@dataclass(slots=True, frozen=True)
class ExtUnit:
    size: int
    tags_code: int
    store_timestamp: int
    bit_map: bytes


def is_address(tags_code: int) -> bool:
    """Whether the tags code of a queue entry is an address in the ext files."""
    return tags_code <= _HIGHEST_ADDRESS


def to_address(offset: int) -> int:
    return offset + _TOP


def to_offset(address: int) -> int:
    return address - _TOP


def fits(at: int, size: int, file_size: int) -> bool:
    """Whether a unit fits into the file at this place, or the end mark has to go there."""
    return at + size + KEPT_FREE <= file_size


def encode(tags_code: int, store_timestamp: int, bit_map: bytes) -> bytes:
    return HEAD.pack(HEAD_SIZE + len(bit_map), tags_code, store_timestamp, len(bit_map)) + bit_map


def decode(buffer: bytes | bytearray | memoryview, at: int) -> ExtUnit | None:
    """The unit at a position; None at an end mark, at zeros, and where it extends beyond the buffer."""
    if at + HEAD_SIZE > len(buffer):
        return None
    size, tags_code, store_timestamp, bit_map_size = HEAD.unpack_from(buffer, at)
    bit_map_size = max(bit_map_size, 0)
    if size < HEAD_SIZE + bit_map_size or at + size > len(buffer):
        return None
    map_at = at + HEAD_SIZE
    return ExtUnit(size, tags_code, store_timestamp, bytes(buffer[map_at : map_at + bit_map_size]))
