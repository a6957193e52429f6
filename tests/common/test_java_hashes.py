from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from common.java_hashes import hashes_between, string_hashes
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


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=60), max_size=40))
def test_a_column_of_texts(texts: list[str]) -> None:
    joined = "".join(texts).encode()
    offsets = np.cumsum([0, *map(len, texts)])
    found = hashes_between(np.frombuffer(joined, np.uint8), offsets)
    assert found.view(np.int32).tolist() == [utf8_hash(text.encode()) for text in texts]


def test_a_column_wider_than_its_tables() -> None:
    texts = [b"x" * 300_000, *[b"key-%030d" % n for n in range(20_000)], b"", b"y" * 262_143, b"z" * 262_144]
    offsets = np.cumsum([0, *map(len, texts)])
    found = hashes_between(np.frombuffer(b"".join(texts), np.uint8), offsets)
    assert found.view(np.int32).tolist() == [utf8_hash(text) for text in texts]
