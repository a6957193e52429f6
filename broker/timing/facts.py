"""The binary format of delayed messages' facts (big-endian):

    1 kind   4 n   then by kind

    START       8 next offset of the timer's queue to read                nothing earlier waits
    ENTRIES     n rows of 8 moment, 8 place                               part of a snapshot
    DELIVERING  n places                                                  their copies follow at once, in this order
    DELIVERED   n copies of the last DELIVERING did follow
    REMOVED     n places                                                  recalled, or undeliverable

The waiting messages are all of ENTRIES and of the timer's queue from START on, except those delivered or removed since;
places never recur, so the order of the facts does not matter. The START is that of the last complete snapshot: remains
of a later one add nothing. A DELIVERING without a successor is the last one before a crash: the log after it shows how
many copies exist. DO NOT CHANGE: on disk (docs/formats/state_log.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct, error
from typing import TYPE_CHECKING

from rocketlet.common.errors import RocketletError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class FactError(RocketletError):
    """Bytes that are not a fact."""


class Kind(IntEnum):
    START = 1
    ENTRIES = 2
    DELIVERING = 3
    DELIVERED = 4
    REMOVED = 5


_HEAD = Struct(">BI")
_LONG = Struct(">q")


@dataclass(slots=True)
class Fact:
    """`numbers` are places; for START the offset; for ENTRIES times and places, alternating."""

    kind: Kind
    count: int
    numbers: NDArray[numpy.int64]


def start(read_to: int) -> bytes:
    return _HEAD.pack(Kind.START, 1) + _LONG.pack(read_to)


def entries(rows: NDArray[numpy.int64]) -> bytes:
    return _HEAD.pack(Kind.ENTRIES, len(rows)) + rows.astype(">i8").tobytes()


def delivering(places: Sequence[int]) -> bytes:
    import numpy

    return _HEAD.pack(Kind.DELIVERING, len(places)) + numpy.array(places, ">i8").tobytes()


def delivered(count: int) -> bytes:
    return _HEAD.pack(Kind.DELIVERED, count)


def removed(places: Sequence[int]) -> bytes:
    import numpy

    return _HEAD.pack(Kind.REMOVED, len(places)) + numpy.array(places, ">i8").tobytes()


def read(data: bytes) -> Iterator[Fact]:
    """The facts of a record. Raises FactError."""
    import numpy

    at = 0
    while at < len(data):
        try:
            number, count = _HEAD.unpack_from(data, at)
            kind = Kind(number)
            longs = {Kind.ENTRIES: 2 * count, Kind.DELIVERED: 0}.get(kind, count)
            at += _HEAD.size
            numbers = numpy.frombuffer(data, ">i8", longs, at).astype(numpy.int64)
        except (error, ValueError) as why:
            raise FactError(f"no fact at byte {at}: {why}") from None
        at += 8 * longs
        yield Fact(kind, count, numbers)


@dataclass(slots=True)
class Gathered:
    """The sum of the facts, without the START of an incomplete snapshot."""

    read_to: int = 0
    rows: list[NDArray[numpy.int64]] = field(default_factory=list)
    gone: list[NDArray[numpy.int64]] = field(default_factory=list)
    unresolved: NDArray[numpy.int64] | None = None
    """The places of a DELIVERING that nothing follows."""

    def take(self, fact: Fact) -> None:
        if fact.kind is Kind.START:
            self.read_to = int(fact.numbers[0])
        elif fact.kind is Kind.ENTRIES:
            self.rows.append(fact.numbers.reshape(-1, 2))
        elif fact.kind is Kind.REMOVED:
            self.gone.append(fact.numbers)
        elif fact.kind is Kind.DELIVERED:
            self.resolve(fact.count)
        else:
            self.unresolved = fact.numbers

    def resolve(self, count: int) -> None:
        """Set how many copies of the last DELIVERING exist."""
        if self.unresolved is not None:
            self.gone.append(self.unresolved[:count])
            self.unresolved = None

    def pending(self) -> NDArray[numpy.int64]:
        """Waiting rows of ENTRIES only."""
        import numpy

        rows = numpy.concatenate(self.rows) if self.rows else numpy.empty((0, 2), numpy.int64)
        # Rows repeated by an incomplete snapshot occur twice here.
        rows = rows[numpy.unique(rows[:, 1], return_index=True)[1]]
        return rows[~numpy.isin(rows[:, 1], self.all_gone())]

    def all_gone(self) -> NDArray[numpy.int64]:
        import numpy

        return numpy.concatenate(self.gone) if self.gone else numpy.empty(0, numpy.int64)
