"""Records inside the data files of a DLedger group, where each stands after a header of 48 bytes.

    0  4  magic: 1 entry, 2 no-op, -1 end of file    16  8  term        32  4  channel      40  4  body CRC
    4  4  size of the entry      8  8  index         24  8  position    36  4  chain CRC    44  4  body length

A record holds its own offset, which is that after the header, so the search for the next true record is that of the
plain log. Files from before a broker joined its group hold plain records without headers; both may be in one folder.

Java: dledger io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore
"""

from __future__ import annotations

from struct import Struct

from rocketlet.common.message_record import FIXED, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Fault, check
from rocketlet.store.layout.log_scan import Damage, Reading, is_zero, last_nonzero, resync

HEADER_SIZE = 48
_TWO = Struct(">ii")
_INT = Struct(">i")
_END_OF_FILE = -1
_NO_OP = 2


def read_ledger(
    buffer: memoryview,
    at: int,
    end: int,
    base: int,
    *,
    verify_body: bool = True,
    stop: int | None = None,
    file_end: int | None = None,
) -> Reading:
    """The records that begin in [at, stop), not their headers, and the damages; the twin of `log_scan.read_through`."""
    reading = Reading(end=at)
    stop = end if stop is None else stop
    while at < end:
        if end - at >= 8 and _is_end_of_file(buffer, at):
            reading.blank, reading.ran_out = True, False
            break
        place = _record_place(buffer, at, end)
        size = check(buffer, place, end, verify_body and place < stop, base + place)
        if size is Fault.BODY_CRC:
            size = _TWO.unpack_from(buffer, place)[0]
            reading.damages.append(Damage(place, size, Fault.BODY_CRC))
        if not isinstance(size, Fault):
            if place >= stop:
                reading.ran_out = False
                break
            reading.places.append(place)
            at = place + size
        elif _is_no_op(buffer, at, end):
            at += HEADER_SIZE
        else:
            following = resync(buffer, at + 1, end, base, file_end)
            if following is None and is_zero(buffer, at, end):
                break
            damage_end = last_nonzero(buffer, at, end) + 1 if following is None else following
            reading.damages.append(Damage(at, damage_end - at, size))
            at = damage_end
    reading.end = at
    return reading


def _record_place(buffer: memoryview, at: int, end: int) -> int:
    """Where the record of an entry is: after the header, or right here if it is a plain one."""
    if end - at < FIXED or _TWO.unpack_from(buffer, at)[1] in (MAGIC_V1, MAGIC_V2):
        return at
    return at + HEADER_SIZE


def _is_end_of_file(buffer: memoryview, at: int) -> bool:
    first, second = _TWO.unpack_from(buffer, at)
    return bool(first == _END_OF_FILE or second == MAGIC_BLANK)


def _is_no_op(buffer: memoryview, at: int, end: int) -> bool:
    if end - at < HEADER_SIZE:
        return False
    return bool(_TWO.unpack_from(buffer, at)[0] == _NO_OP and _INT.unpack_from(buffer, at + 44)[0] == 0)
