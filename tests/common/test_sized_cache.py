"""The cache with a size: bounded whatever the keys are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.sized_cache import SizedCache


def cache(most: int) -> tuple[SizedCache[str, str], list[str]]:
    computed: list[str] = []

    def upper(text: str) -> str:
        computed.append(text)
        return text.upper()

    return SizedCache(upper, len, most), computed


def test_a_value_is_computed_once() -> None:
    upper, computed = cache(100)
    assert [upper("a"), upper("a"), upper("b")] == ["A", "A", "B"]
    assert computed == ["a", "b"]


def test_what_is_remembered_is_known() -> None:
    upper, computed = cache(32)
    assert "a" not in upper
    upper("a")
    assert "a" in upper
    assert computed == ["a"]


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    upper, computed = cache(32)
    for number in range(16):
        upper(f"{number:02}")
    upper("00")
    upper("99")
    assert upper("00") == "00"
    assert computed.count("00") == 1
    upper("01")
    assert computed.count("01") == 2


def test_oversized_values_are_not_cached() -> None:
    upper, computed = cache(160)
    assert upper("x" * 11) == upper("x" * 11)
    assert len(computed) == 2
    assert upper.size == len(upper) == 0


def test_an_error_is_not_cached() -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    failing = SizedCache(fail, len, 100)
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            failing("a")
    assert len(failing) == 0


@given(st.lists(st.text(max_size=20)))
def test_the_size_is_the_sum_of_entries_and_bounded(texts: list[str]) -> None:
    upper, _ = cache(50)
    for text in texts:
        assert upper(text) == text.upper()
        assert upper.size <= 50
    assert upper.size == sum(len(key) for key in upper._entries)
