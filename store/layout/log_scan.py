"""Walking the records of a log file, over any buffer: for recovery, checks and the Spark jobs.

Positions in the buffer are `at`, positions in the log are offsets; `base` is the log offset of the buffer's first byte,
so the record at `at` must say that it was written for `base + at`. Java never compares the two, but nothing else
distinguishes a record from its copy inside the body of another one, or from what an older, truncated log left behind.

`scan` walks while records follow one another and says where and why it stopped. `read_through` continues: it searches
for the next true record (magic, lengths and its own offset) and reports what is in between as damage. Both accept what
a crash can leave and nothing else: zeros after the last record are the end, a blank record is the end of a file.

Java: store/CommitLog.java#recoverAbnormally, #checkMessageAndReturnSize
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import (
    BLANK_SIZE,
    FIXED,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V1_BYTES,
    MAGIC_V2,
    MAGIC_V2_BYTES,
    PROPERTIES_MAX,
    Buffer,
    Fault,
    check,
)

if TYPE_CHECKING:
    import numpy as np

_TWO = Struct(">ii")
_WINDOW = 1 << 20  # how much is searched at once for the next magic number, and for a byte that is not zero
_ZEROS = bytes(_WINDOW)
# As many zeros as a record may end with: its topic has none, and after it come the properties and their length.
LONGEST_ZEROS = 2 + PROPERTIES_MAX


@dataclass(slots=True, frozen=True)
class Scan:
    """The records that follow one another from a place, and why there is no further one at `end`."""

    places: list[int]
    end: int
    fault: Fault


@dataclass(slots=True, frozen=True)
class Damage:
    """A stretch without a readable record; or a record that can be read but whose body fails its CRC."""

    at: int
    size: int
    fault: Fault


@dataclass(slots=True)
class Reading:
    """Everything in a stretch of the log: positions of its records, damage between them, and where the data ends.

    `end` is after the last record or damage; `blank` says that a blank record follows, so the file is complete.
    `ran_out` says that the bytes ended before another record or the blank one.
    """

    places: list[int] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    end: int = 0
    blank: bool = False
    ran_out: bool = True


def scan(buffer: Buffer, at: int, end: int, base: int, *, verify_body: bool = True, limit: int | None = None) -> Scan:
    """Walk from `at` while whole records follow one another; at most `limit` of them, then the fault is EMPTY.

    `end` is where the file (or its good part) ends; a record never crosses it.
    """
    places: list[int] = []
    room = len(buffer) if limit is None else limit
    while len(places) < room:
        size = check(buffer, at, end, verify_body, base + at)
        if isinstance(size, Fault):
            return Scan(places, at, size)
        places.append(at)
        at += size
    return Scan(places, at, Fault.EMPTY)


def chain(buffer: Buffer, at: int, end: int, stop: int | None = None) -> tuple[list[int], int]:
    """The positions before `stop` reached by sizes and magic numbers alone, and where they lead no further: 0.3 µs a
    record.

    For callers that then check lengths, offsets and CRCs of all of them at once.
    """
    places: list[int] = []
    append = places.append
    unpack = _TWO.unpack_from
    last = end - FIXED if stop is None else min(end - FIXED, stop - 1)
    while at <= last:
        size, magic = unpack(buffer, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED or at + size > end:
            break
        append(at)
        at += size
    return places, at


def read_through(
    buffer: Buffer,
    at: int,
    end: int,
    base: int,
    *,
    verify_body: bool = True,
    stop: int | None = None,
    file_end: int | None = None,
) -> Reading:
    """Everything from `at` on that begins before `stop`, and the damage that comes right after it.

    `end` is where the data ends, `file_end` (for the blank record) where the file does. A reader of the next part of
    the file starts with `resync` at `stop`, and so between them each record and each damage is seen exactly once.
    """
    reading = Reading(end=at)
    stop = end if stop is None else stop
    file_end = end if file_end is None else file_end
    while at < end:
        size = check(buffer, at, end, verify_body and at < stop, base + at)
        if (
            size is Fault.BODY_CRC
        ):  # all lengths and the offset hold: the record can be read, but its body is not trusted
            size = _TWO.unpack_from(buffer, at)[0]
            reading.damages.append(Damage(at, size, Fault.BODY_CRC))
        if not isinstance(size, Fault):
            if at >= stop:
                reading.ran_out = False
                break
            reading.places.append(at)
            at += size
        elif size is Fault.BLANK and is_blank_of(buffer, at, file_end):
            reading.blank, reading.ran_out = True, False
            break
        else:
            following = resync(buffer, at + 1, end, base, file_end)
            if following is None:
                at = _end_of_data(buffer, at, end, size, reading)
                break
            reading.damages.append(Damage(at, following - at, size))
            at = following
    reading.end = at
    return reading


def _end_of_data(buffer: Buffer, at: int, end: int, fault: Fault, reading: Reading) -> int:
    """Where data without a following record ends: at the zeros, after anything else."""
    if fault is Fault.EMPTY and is_zero(buffer, at, end):
        return at
    last = last_nonzero(buffer, at, end) + 1
    reading.damages.append(Damage(at, last - at, fault))
    return last


def is_blank_of(buffer: Buffer, at: int, file_end: int) -> bool:
    """Whether there is a blank record here that fills the file to its end."""
    if min(file_end, len(buffer)) - at < BLANK_SIZE:
        return False
    room, magic = _TWO.unpack_from(buffer, at)
    return bool(magic == MAGIC_BLANK and room == file_end - at)


def resync(
    buffer: Buffer, at: int, end: int, base: int, file_end: int | None = None, reach: int | None = None
) -> int | None:
    """The first position from `at` on with a whole record that was written for it, or with the file's blank record.

    A copy of a record inside a body has another offset, so it is no true record. The CRC of the body does not matter.
    `reach`: how far a record that begins before `end` may extend; by default no farther than `end`.
    """
    file_end = end if file_end is None else file_end
    reach = end if reach is None else reach
    while at < end:
        window = bytes(buffer[at : min(at + _WINDOW + BLANK_SIZE, end)])
        for position in _magics(window):
            place = at + position
            is_record = not isinstance(check(buffer, place, reach, False, base + place), Fault)
            if is_record or is_blank_of(buffer, place, file_end):
                return place
        at += _WINDOW
    return None


def _magics(window: bytes) -> list[int]:
    """Positions followed by one of the magic numbers, among those that begin in the first _WINDOW bytes."""
    positions = []
    for magic in (MAGIC_V1_BYTES, MAGIC_V2_BYTES, MAGIC_BLANK.to_bytes(4, "big", signed=True)):
        at = window.find(magic, 4)
        while 0 <= at < _WINDOW + 4:
            positions.append(at - 4)
            at = window.find(magic, at + 1)
    return sorted(positions)


def is_zero(buffer: Buffer, at: int, end: int) -> bool:
    return last_nonzero(buffer, at, end) < at


def last_nonzero(buffer: Buffer, at: int, end: int) -> int:
    """Place of the last byte that is not zero in [at, end), or at - 1: searched from the end, 10 GB/s over zeros."""
    while end > at:
        start = max(at, end - _WINDOW)
        piece = bytes(buffer[start:end])
        if piece != _ZEROS[: len(piece)]:
            return start + len(piece.rstrip(b"\0")) - 1
        end = start
    return at - 1


@cache
def head_dtype() -> np.dtype[Any]:
    """The first 48 bytes of a record, which are the same in all, as numpy sees them (big-endian)."""
    import numpy

    return numpy.dtype(
        [
            ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
            ("queue_offset", ">i8"), ("log_offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp", ">i8"),
        ]
    )  # fmt: skip
