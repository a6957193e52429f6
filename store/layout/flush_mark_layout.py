"""A flush mark: up to which log offset the log has been flushed, in `rocketlet/flushed`.

    0   8  "ROCKFLSH"      12  4  bytes of tail n      24  4  CRC-32 of the n bytes of the log before the offset
    8   4  version, 1      16  8  log offset           28  4  CRC-32 of all before

The file has two, at 0 and at 256: log files take turns, so that damage to the end of the newest one leaves the mark of
the file before it. The tail tells whether the log is still the one that was flushed. Big-endian. DO NOT CHANGE; a new
layout takes a new version.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from rocketlet.common.crc import crc32

_MARK = Struct(">8siiqI")
_SUM = Struct(">I")
_MAGIC = b"ROCKFLSH"
_VERSION = 1
_STEP = 256
SIZE = _MARK.size + _SUM.size
FILE_SIZE = 2 * _STEP  # one sector, and so is each mark: it is on the disk whole or not at all

assert SIZE == 32


@dataclass(frozen=True, slots=True)
class FlushMark:
    """The log was flushed up to `log_offset`."""

    log_offset: int
    tail_size: int
    tail_sum: int


def place_of(file_number: int) -> int:
    """Where the mark for an offset in that log file stands."""
    return file_number % 2 * _STEP


def encode(mark: FlushMark) -> bytes:
    data = _MARK.pack(_MAGIC, _VERSION, mark.tail_size, mark.log_offset, mark.tail_sum)
    return data + _SUM.pack(crc32(data))


def marks_in(data: bytes) -> Iterator[FlushMark]:
    """The marks of a file; damaged ones are left out."""
    for place in range(0, FILE_SIZE, _STEP):
        raw = data[place : place + SIZE]
        if len(raw) < SIZE or _SUM.unpack_from(raw, _MARK.size)[0] != crc32(raw[: _MARK.size]):
            continue
        magic, version, tail_size, log_offset, tail_sum = _MARK.unpack_from(raw)
        if magic == _MAGIC and version == _VERSION and 0 < tail_size <= log_offset:
            yield FlushMark(log_offset, tail_size, tail_sum)
