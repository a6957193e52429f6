"""Columns that are sorted or to be grouped.

Java: (none)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bounds_of_equal(column: NDArray[Any]) -> list[int]:
    """Where stretches of equal numbers begin in a sorted column that is not empty, and where the last one ends."""
    return [0, *((column[1:] != column[:-1]).nonzero()[0] + 1).tolist(), len(column)]
