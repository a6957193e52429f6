"""Columns of decimal numbers."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.decimal_columns import digits_of, numbers_of

TEXTS = st.integers(1, 20).flatmap(
    lambda width: st.lists(st.text("0123456789 -:a", min_size=width, max_size=width), min_size=1, max_size=20)
)


@given(TEXTS)
def test_what_one_writes_as_a_number_is_read_and_nothing_else(texts: list[str]) -> None:
    rows = numpy.frombuffer("".join(texts).encode(), numpy.uint8).reshape(len(texts), -1)
    numbers = numbers_of(rows)
    if len(texts[0]) <= 18 and all(text.isdigit() and text == str(int(text)) for text in texts):
        assert numbers is not None
        assert numbers.tolist() == [int(text) for text in texts]
    else:
        assert numbers is None


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
