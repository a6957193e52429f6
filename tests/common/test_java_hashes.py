from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.java_hashes import string_hashes
from common.java_numbers import utf8_hash


@given(st.lists(st.binary(max_size=60), max_size=40))
def test_same_as_one_by_one(texts: list[bytes]) -> None:
    assert string_hashes(texts) == [utf8_hash(text) for text in texts]


def test_more_bytes_than_one_table_of_powers() -> None:
    texts = [b"TopicTest#" + b"%040d" % n for n in range(3000)] + ["订单".encode(), b"", b"x" * 70000]
    assert string_hashes(texts) == [utf8_hash(text) for text in texts]


def test_few() -> None:
    assert string_hashes([]) == []
    assert string_hashes([b"TagA", b"refund"]) == [2598919, -934813832]
