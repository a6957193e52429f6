"""One entry of a consume queue, 20 bytes: where the message is, how long, and the hash of its tags.

    0   8  log offset        8   4  size of the record        12  8  tags code, or an address in the queue's ext files

The entry of queue offset q is at byte 20 q of the queue. A queue that starts in the middle of a file has pre-blank
entries before its first one. For one entry use the struct (0.1 µs), for many the dtype (a thousand in 3 µs).

Java: store/ConsumeQueue.java
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from rocketlet.common.java_numbers import INT32_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENTRY = Struct(">qiq")
ENTRY_SIZE = ENTRY.size
DEFAULT_FILE_SIZE = 300_000 * ENTRY_SIZE

PRE_BLANK_SIZE = INT32_MAX
PRE_BLANK = ENTRY.pack(0, PRE_BLANK_SIZE, 0)  # a size of 0 would end the queue for a recovering Java broker

# The tags code of an entry whose message was lost to damage in the log. Pulls skip it. It is no 32-bit hash, no
# address of an extension unit, and as a delivery time it never comes. On disk: DO NOT CHANGE.
LOST = 0x7FFFFFFFFFFFFF00

assert ENTRY_SIZE == 20


@cache
def entry_dtype() -> np.dtype[Any]:
    """The entry as numpy sees it: fields log_offset, size, tags_code, big-endian."""
    import numpy

    return numpy.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def entries_of(buffer: bytes | bytearray | memoryview) -> NDArray[Any]:
    """The entries of a buffer without copying it (a remainder of less than 20 bytes is left out). It keeps the buffer
    alive."""
    import numpy

    return numpy.frombuffer(buffer, entry_dtype(), len(buffer) // ENTRY_SIZE)


def pack_entries(
    log_offsets: NDArray[Any], sizes: NDArray[Any], tags_codes: Sequence[int] | NDArray[Any] | int
) -> bytes:
    """Entries one after another; all may have one tags code."""
    import numpy

    entries = numpy.empty(len(log_offsets), entry_dtype())
    entries["log_offset"], entries["size"], entries["tags_code"] = log_offsets, sizes, tags_codes
    return entries.tobytes()


def file_size_for(size: int) -> int:
    """The size that a broker uses for a configured one: rounded up to whole entries."""
    return -(-size // ENTRY_SIZE) * ENTRY_SIZE


def is_pre_blank(log_offset: int, size: int) -> bool:
    return size == PRE_BLANK_SIZE and log_offset == 0


def is_valid(log_offset: int, size: int) -> bool:
    """Whether recovery accepts these as an entry; the zeros after the end of a queue are none."""
    return log_offset >= 0 and size > 0


def are_past(buffer: bytes | bytearray | memoryview, log_begin: int) -> NDArray[np.bool_]:
    """Which entries are pre-blank, or of messages that lie before the beginning of the log: retention deleted them.

    Such an entry was durable, and so was every one before it, before the log file of its message was deleted.
    """
    entries = entries_of(buffer)
    offsets, sizes = entries["log_offset"], entries["size"]
    is_blank = (offsets == 0) & (sizes == INT32_MAX)
    result: NDArray[np.bool_] = (sizes > 0) & (offsets >= 0) & (offsets < log_begin) | is_blank
    return result


def count_valid(buffer: bytes | bytearray | memoryview) -> int:
    """How many valid entries stand at the beginning of a file, pre-blank ones among them."""
    entries = entries_of(buffer)
    bad = (entries["size"] <= 0) | (entries["log_offset"] < 0)
    return int(bad.argmax()) if bad.any() else len(entries)
