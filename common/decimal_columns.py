"""Columns of numbers in decimal: rows of ASCII digits, all of one width.

Java: (none)
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDEST = 18  # digits that an int64 holds, whichever they are
_ZERO = 48


def numbers_of(rows: NDArray[Any]) -> NDArray[Any] | None:
    """The numbers (int64); None where a row is not a number as one writes it: digits, and no zero before others."""
    digits = rows - _ZERO
    width = digits.shape[1]
    if not 0 < width <= _WIDEST or int(digits.max()) > 9 or (width > 1 and not digits[:, 0].all()):
        return None
    numbers: NDArray[Any] = digits @ _powers(width)
    return numbers


def digits_of(numbers: NDArray[Any]) -> NDArray[Any] | None:
    """The digits of numbers that are not negative; None where some have more than others."""
    width = len(str(int(numbers.max())))
    if len(str(int(numbers.min()))) != width:
        return None
    digits: NDArray[Any] = numbers[:, None] // _powers(width) % 10 + _ZERO
    return digits


@cache
def _powers(width: int) -> NDArray[Any]:
    import numpy

    return numpy.array([10**place for place in range(width - 1, -1, -1)], numpy.int64)
