"""Integers as Java computes them: 32 and 64 bits that wrap around, and the hash of a string.

RocketMQ's files and filters carry `String.hashCode` values (the tags code of a queue entry, the key hash of an index
entry), so these numbers are part of the format: UTF-16 code units, 31 as the factor, signed 32 bits.

Java: java.lang.String#hashCode, store/index/IndexFile.java#indexKeyHashMethod
"""

from __future__ import annotations

from operator import mul

INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF

# _FALLING[n] is 31^(n-1) ... 31, 1 (modulo 2^32). One `sum(map(mul, ...))` runs in C and takes a key of 42 characters
# from 2.4 to 1.4 µs; the tables of the lengths that occur stay, 120 KB for all of them.
_TABLED = 160
_FALLING: list[tuple[int, ...] | None] = [None] * (_TABLED + 1)


def to_int32(number: int) -> int:
    """The low 32 bits, as a signed number."""
    number &= 0xFFFFFFFF
    return number - 0x100000000 if number & 0x80000000 else number


def string_hash(text: str) -> int:
    """`String.hashCode` of the text."""
    if text.isascii():
        return ascii_hash(text.encode())
    return _units_hash(memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist())


def ascii_hash(text: bytes) -> int:
    """`String.hashCode` of text that is known to be ASCII, from its bytes."""
    size = len(text)
    if size > _TABLED:
        return _units_hash(list(text))
    falling = _FALLING[size]
    if falling is None:
        falling = _FALLING[size] = tuple(pow(31, size - 1 - i, 1 << 32) for i in range(size))
    number: int = sum(map(mul, text, falling)) & 0xFFFFFFFF
    return number - 0x100000000 if number & 0x80000000 else number


def utf8_hash(text: bytes) -> int:
    """`String.hashCode` of what Java reads from these UTF-8 bytes (malformed ones become U+FFFD, as there)."""
    return ascii_hash(text) if text.isascii() else string_hash(text.decode("utf-8", "replace"))


def index_hash(hash_code: int) -> int:
    """The hash an index entry keeps: the absolute value, 0 for the one number that has none."""
    return abs(hash_code) if hash_code != -0x80000000 else 0


def index_key_hash(topic: str, key: str) -> int:
    """The hash under which the index files a key of a topic."""
    return index_hash(string_hash(f"{topic}#{key}"))


def _units_hash(units: list[int]) -> int:
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    return number - 0x100000000 if number & 0x80000000 else number
