"""Where in the text of some properties their values are, for tables of texts that differ in these places only.

The text: common/message_properties.py.

Java: common/message/MessageDecoder.java#string2messageProperties
"""

from __future__ import annotations

from typing import NamedTuple


class PropertyPlaces(NamedTuple):
    """Slices of a text. `named` has the last value of each name, as a reader finds it; `values` has all of them.
    `keys` are those for the index, the unique key first; `words` is the value that holds the others."""

    named: dict[bytes, slice]
    values: list[slice]
    keys: list[slice]
    words: slice | None

    @property
    def tags(self) -> slice | None:
        return self.named.get(b"TAGS")


def property_places(
    text: bytes, begin: int = 0, end: int | None = None, *, name_end: bytes = b"\x01", value_end: bytes = b"\x02"
) -> PropertyPlaces:
    """The places in `text` of the properties between begin and end; empty values are none."""
    at, values, named = begin, list[slice](), dict[bytes, slice]()
    for piece in text[begin:end].split(value_end):
        name, _, value = piece.partition(name_end)
        if value:
            place = slice(at + len(piece) - len(value), at + len(piece))
            named[name] = place
            values.append(place)
        at += len(piece) + len(value_end)
    words = named.get(b"KEYS")
    keys = [named[b"UNIQ_KEY"]] if b"UNIQ_KEY" in named else []
    if words is not None:
        at = words.start
        for word in text[words].split(b" "):
            if word:
                keys.append(slice(at, at + len(word)))
            at += len(word) + 1
    return PropertyPlaces(named, values, keys, words)
