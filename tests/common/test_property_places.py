"""Places of values are where a reader of the properties finds them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message_properties import decode_bytes, tags_and_keys
from rocketlet.common.property_places import property_places

TEXTS = st.lists(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "\x01", "\x02", "a", " ", "b c", "\u00e9", "WAIT"]), max_size=14
).map("".join)


@given(TEXTS, st.binary(max_size=5))
def test_each_place_holds_what_a_reader_finds(text: str, before: bytes) -> None:
    raw = before + text.encode()
    places = property_places(raw, len(before))
    read = {name.decode(): raw[place].decode() for name, place in places.named.items() if name}
    assert read == decode_bytes(text.encode())
    tags, keys = tags_and_keys(text.encode())
    assert [raw[place] for place in places.keys] == keys
    assert (raw[places.tags] if places.tags else None) == tags


def test_other_separators() -> None:
    raw = rb'"i":"A\u0001x\u0002B\u0001yz","j"'
    places = property_places(raw, 5, len(raw) - 5, name_end=rb"\u0001", value_end=rb"\u0002")
    assert {name: raw[place] for name, place in places.named.items()} == {b"A": b"x", b"B": b"yz"}
