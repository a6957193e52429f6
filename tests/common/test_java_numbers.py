from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_numbers import (
    ascii_hash,
    index_hash,
    index_key_hash,
    string_hash,
    to_int32,
    utf8_hash,
)


def reference_hash(text: str) -> int:
    """`String.hashCode` by its definition."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def test_hashes_seen_in_a_jvm() -> None:
    seen = {
        "": 0,
        "TagA": 2598919,
        "TagB": 2598920,
        "refund": -934813832,
        "订单": 1129459,
        "polygenelubricants": -0x80000000,
        "TopicTest#7F0000010A1B18B4AAC20A1B2C3D0000": 1660282048,
        "TopicTest#order-1001": 1043804929,
        "TopicTest#user-7": -1964477641,
        "中文#\U0001f600": 2078661004,
    }
    assert {text: string_hash(text) for text in seen} == seen


@given(st.text(st.characters(exclude_categories=[]), max_size=400))
def test_hash_of_any_text(text: str) -> None:
    assert string_hash(text) == reference_hash(text)


@given(st.binary(max_size=300))
def test_the_hash_of_bytes_is_that_of_their_text(raw: bytes) -> None:
    assert utf8_hash(raw) == reference_hash(raw.decode("utf-8", "replace"))


def test_long_ascii_text_takes_the_loop() -> None:
    assert ascii_hash(b"ab" * 500) == reference_hash("ab" * 500)


def test_index_hash_is_never_negative() -> None:
    assert index_hash(-0x80000000) == 0
    assert index_hash(-5) == index_hash(5) == 5
    assert index_key_hash("TopicTest", "user-7") == 1964477641


@given(st.integers())
def test_wrapping(number: int) -> None:
    assert to_int32(number) == (number + (1 << 31)) % (1 << 32) - (1 << 31)
