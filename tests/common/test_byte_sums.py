"""Decimals and hashes as weighted sums of bytes."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.byte_sums import WIDEST_DECIMAL, ByteSums, decimal_sum, hash_sum
from rocketlet.common.java_numbers import ascii_hash

ASCII = st.characters(max_codepoint=127)


def fixed(alphabet: st.SearchStrategy[str] | str, most: int) -> st.SearchStrategy[list[str]]:
    """Three texts as long as each other."""
    return st.integers(1, most).flatmap(
        lambda size: st.lists(st.text(alphabet, min_size=size, max_size=size), min_size=3, max_size=3)
    )


@given(fixed("0123456789", WIDEST_DECIMAL), fixed(ASCII, 300), fixed(ASCII, 40), st.text(ASCII, max_size=20))
def test_decimals_and_hashes_are_those_of_each_text(
    decimals: list[str], long: list[str], short: list[str], prefix: str
) -> None:
    texts = [f"<{one}|{other}|{third}>" for one, other, third in zip(decimals, long, short, strict=True)]
    rows = numpy.frombuffer("".join(texts).encode(), numpy.uint8).reshape(3, -1)
    first = slice(1, 1 + len(decimals[0]))
    second = slice(first.stop + 1, first.stop + 1 + len(long[0]))
    third = slice(second.stop + 1, second.stop + 1 + len(short[0]))
    sums = ByteSums([hash_sum(third, prefix.encode()), decimal_sum(first), hash_sum(second)]).of(rows)
    assert sums[:, 1].tolist() == [int(text) for text in decimals]
    assert sums[:, 0].astype(numpy.int32).tolist() == [ascii_hash((prefix + text).encode()) for text in short]
    assert sums[:, 2].astype(numpy.int32).tolist() == [ascii_hash(text.encode()) for text in long]
