"""Columns of decimal numbers."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.decimal_columns import digits_of


@given(
    st.integers(1, 19).flatmap(
        lambda width: st.lists(
            st.integers(10 ** (width - 1) if width > 1 else 0, min(10**width, 1 << 63) - 1), min_size=1, max_size=20
        )
    )
)
def test_numbers_of_one_width_are_written_as_digits(numbers: list[int]) -> None:
    digits = digits_of(numpy.array(numbers))
    assert digits is not None
    assert [row.astype(numpy.uint8).tobytes().decode() for row in digits] == [str(number) for number in numbers]


def test_numbers_of_two_widths_have_no_table() -> None:
    assert digits_of(numpy.array([9, 10])) is None
    assert digits_of(numpy.array([10, 9, 100])) is None
