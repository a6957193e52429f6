"""Columns of numbers in decimal: rows of ASCII digits, all of one width.

Java: (none)
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ZERO = 48


def digits_of(numbers: NDArray[Any]) -> NDArray[Any] | None:
    """The digits of numbers that are not negative; None where some have more than others."""
    width = len(str(int(numbers.max())))
    if len(str(int(numbers.min()))) != width:
        return None
    digits: NDArray[Any] = numbers[:, None] // powers_of_ten(width) % 10 + _ZERO
    return digits


@cache
def powers_of_ten(width: int) -> NDArray[Any]:
    """What each digit counts, the first one first. REQUIRES at most 19 digits."""
    import numpy

    return numpy.array([10**place for place in range(width - 1, -1, -1)], numpy.int64)
