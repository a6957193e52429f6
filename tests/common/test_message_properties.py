from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message_properties import (
    InvalidProperty,
    append,
    check_property,
    decode,
    decode_bytes,
    encode,
    find,
    index_keys,
    remove,
    tags_and_keys,
)

names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
# Bytes in which separators and few names meet in every order.
tangled = st.lists(st.sampled_from([b"\x01", b"\x02", b"K", b"KEYS", b"TAGS", b"UNIQ_KEY", b"a b"]), max_size=24).map(
    b"".join
)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("61016202630102640165", {"a": "b", "d": "e"}),
        ("61620102", {}),
        ("017802610162", {"a": "b"}),
        ("6b0176017702", {"k": "v\x01w"}),
        ("6e6f6b76026b0176", {"k": "v"}),
    ],
)
def test_quirks_seen_in_a_jvm(raw: str, found: dict[str, str]) -> None:
    assert decode_bytes(bytes.fromhex(raw)) == found


@given(st.dictionaries(names, values, max_size=8), st.booleans())
def test_round_trip_with_and_without_the_last_separator(properties: dict[str, str], trailing: bool) -> None:
    assert decode(encode(properties) + ("\x02" if trailing and properties else "")) == properties


@given(tangled)
def test_one_pass_agrees_with_three_searches(raw: bytes) -> None:
    assert tags_and_keys(raw) == (find(raw, b"TAGS"), index_keys(raw))


@given(tangled)
def test_find_agrees_with_decode(raw: bytes) -> None:
    found = decode_bytes(raw)
    for name in ("K", "KEYS", "TAGS", "a b"):
        value = find(raw, name.encode())
        assert (None if value is None else value.decode()) == found.get(name)


@given(tangled)
def test_append_and_remove(raw: bytes) -> None:
    found = decode_bytes(raw)
    assert decode_bytes(append(raw, b"TAGS", b"new")) == found | {"TAGS": "new"}
    found.pop("KEYS", None)
    assert decode_bytes(remove(raw, b"KEYS")) == found


def test_append_and_remove_bytes() -> None:
    assert append(b"", b"A", b"1") == b"A\x011"
    assert append(b"A\x011", b"B", b"2") == append(b"A\x011\x02", b"B", b"2") == b"A\x011\x02B\x012"
    assert remove(b"WAIT\x01true\x02A\x011", b"WAIT") == b"A\x011"
    assert remove(b"XWAIT\x01true", b"WAIT") == b"XWAIT\x01true"


def test_index_keys() -> None:
    raw = b"KEYS\x01 order-1001  user-7\x02UNIQ_KEY\x017F00\x02TAGS\x01TagA"
    assert index_keys(raw) == [b"7F00", b"order-1001", b"user-7"]
    assert index_keys(b"TAGS\x01TagA") == []


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("x", ""), ("KEYS", "k"), ("a\x01", "x"), ("a", "x\x02")])
def test_properties_a_user_may_not_set(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty):
        check_property(name, value)


def test_properties_a_user_may_set() -> None:
    check_property("colour", "blue")
