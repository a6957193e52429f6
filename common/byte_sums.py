"""Numbers that are weighted sums of the bytes of a text, for tables of texts: decimals, and Java's hashes of strings.

A digit at place i from the right adds (byte - 48) * 10^i to a decimal, a byte as much as byte * 31^i to
`String.hashCode`. So all such numbers of all rows are one multiplication and one addition by pieces: 6 µs for five
numbers in each of 32 rows, where each number by itself takes that.

Java: java.lang.String#hashCode
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketlet.common.decimal_columns import powers_of_ten
from rocketlet.common.java_hashes import falling_powers
from rocketlet.common.java_numbers import ascii_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDEST_DECIMAL = 18  # digits that an int64 holds, whichever they are
_ZERO = 48


class ByteSum(NamedTuple):
    """A number: the bytes at `place`, of which there is one at least, times their weights, and `constant`."""

    place: slice
    weights: NDArray[Any]
    constant: int


def decimal_sum(place: slice) -> ByteSum:
    """The number that is written there. REQUIRES digits, at most `WIDEST_DECIMAL` of them."""
    weights = powers_of_ten(place.stop - place.start)
    return ByteSum(place, weights, -_ZERO * int(weights.sum()))


def hash_sum(place: slice, prefix: bytes = b"") -> ByteSum:
    """A number whose lowest 32 bits are the hash of prefix and text. REQUIRES ASCII."""
    size = place.stop - place.start
    return ByteSum(place, falling_powers(size), ascii_hash(prefix) * pow(31, size, 1 << 32) & 0xFFFFFFFF)


class ByteSums:
    """The same numbers of each row of a table of bytes."""

    def __init__(self, sums: Sequence[ByteSum]) -> None:
        import numpy

        self._places = numpy.concatenate([numpy.arange(place.start, place.stop) for place, _, _ in sums])
        self._weights = numpy.concatenate([weights for _, weights, _ in sums], dtype=numpy.int64)
        ends = numpy.cumsum([len(weights) for _, weights, _ in sums])
        self._begins = numpy.concatenate(([0], ends[:-1]))
        self._constants = numpy.array([constant for _, _, constant in sums], numpy.int64)

    def of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """A row of numbers (int64) for each row of bytes."""
        import numpy

        products = rows.take(self._places, axis=1) * self._weights
        numbers: NDArray[Any] = numpy.add.reduceat(products, self._begins, axis=1) + self._constants
        return numbers
