from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_hashes import hash_column, hash_of_rows, hashes_between, string_hashes
from rocketlet.common.java_numbers import utf8_hash


@given(st.lists(st.binary(max_size=60), max_size=40))
def test_agrees_with_hashing_one_by_one(texts: list[bytes]) -> None:
    assert string_hashes(texts) == [utf8_hash(text) for text in texts]


def test_hashes_of_texts_longer_than_the_table_of_powers() -> None:
    texts = [b"TopicTest#" + b"%040d" % n for n in range(3000)] + ["订单".encode(), b"", b"x" * 70000]
    assert string_hashes(texts) == [utf8_hash(text) for text in texts]


def test_few_texts() -> None:
    assert string_hashes([]) == []
    assert string_hashes([b"TagA", b"refund"]) == [2598919, -934813832]


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=60), max_size=40))
def test_a_column_of_texts_is_hashed(texts: list[str]) -> None:
    joined = "".join(texts).encode()
    offsets = np.cumsum([0, *map(len, texts)])
    found = hashes_between(np.frombuffer(joined, np.uint8), offsets)
    assert found.view(np.int32).tolist() == [utf8_hash(text.encode()) for text in texts]


def test_a_column_wider_than_its_tables() -> None:
    texts = [b"x" * 300_000, *[b"key-%030d" % n for n in range(20_000)], b"", b"y" * 262_143, b"z" * 262_144]
    offsets = np.cumsum([0, *map(len, texts)])
    found = hashes_between(np.frombuffer(b"".join(texts), np.uint8), offsets)
    assert found.view(np.int32).tolist() == [utf8_hash(text) for text in texts]


@given(st.lists(st.text(max_size=8).map(str.encode), max_size=20), st.integers(0, 5))
def test_columns_of_hashes(texts: list[bytes], size: int) -> None:
    assert hash_column(texts).tolist() == [utf8_hash(text) for text in texts]
    equal = [b"%05d" % number for number in range(20)]
    assert hash_column(equal).tolist() == [utf8_hash(text) for text in equal]
    rows = np.frombuffer(b"".join(equal), np.uint8).reshape(20, 5)[:, :size]
    assert hash_of_rows(b"topic#", rows).tolist() == [utf8_hash(b"topic#" + text[:size]) for text in equal]


def test_rows_of_any_length_are_hashed() -> None:
    text = b"0123456789abcdef" * 2049  # longer than the table of powers that most need
    assert hash_of_rows(b"T#", np.frombuffer(text, np.uint8)[None]).tolist() == [utf8_hash(b"T#" + text)]
