"""A text that counts how often it is compared: what a look-up in a large table costs."""

from __future__ import annotations


class Compared(str):
    """`count` is of all of them together."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)
