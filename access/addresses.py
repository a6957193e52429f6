"""Addresses from which an account, or all accounts, may connect: RocketMQ's patterns.

    *                                     any address
    10.1.2.3  2001:db8::7                 one
    10.1.2.3,10.1.2.4                     these
    10.1.*.*  10.1.2.1-20  2001:db8:*:*:*:*:*:1-ff     parts with any value, or in a range; hexadecimal in IPv6
    10.1.2.{3,4,5}                        parts with one of several values
    (empty)                               none

Here each part of an address may have any of these forms, which RocketMQ accepts only in the last parts. An IPv4 peer
of an IPv6 socket (::ffff:10.1.2.3) is its IPv4 address.

Java: acl/plain/RemoteAddressStrategyFactory.java
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_PATTERN = 4_000  # characters
_LONGEST_LIST = 1_000  # patterns in one

# A comma between patterns, not one inside braces.
_between = re.compile(r",(?![^{]*})")


class AddressError(ValueError):
    """An invalid pattern; the message says why."""


Part = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern: the parts of an address (4, or 8 of IPv6) that all have to match; none: any address matches."""

    parts: tuple[Part, ...] = ()

    def matches(self, numbers: tuple[int, ...]) -> bool:
        """Whether an address, as returned by `numbers_of`, matches."""
        if not self.parts:
            return True
        return len(numbers) == len(self.parts) and all(
            part(number) for part, number in zip(self.parts, numbers, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Addresses:
    """A list of patterns. `text` is the original text; without patterns no address matches."""

    text: str = ""
    patterns: tuple[Pattern, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, host: str) -> bool:
        """Whether this host matches. Anything but an address matches only `*`."""
        numbers = numbers_of(host)
        return any(pattern.matches(numbers) for pattern in self.patterns)


NO_ADDRESSES = Addresses()


def addresses(text: str | None) -> Addresses:
    """Raises AddressError."""
    text = (text or "").strip()
    if len(text) > LONGEST_PATTERN:
        raise AddressError(f"a list of addresses of {len(text)} characters; at most {LONGEST_PATTERN} are allowed")
    pieces = [piece.strip() for piece in _between.split(text) if piece.strip()]
    if len(pieces) > _LONGEST_LIST:
        raise AddressError(f"{len(pieces)} addresses in one list; at most {_LONGEST_LIST} are allowed")
    return Addresses(text, tuple(_pattern(piece) for piece in pieces))


def numbers_of(host: str) -> tuple[int, ...]:
    """The parts of an address: 4 of IPv4, 8 of IPv6; none if the text is not an address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            packed = address.packed
            return tuple(packed[index] << 8 | packed[index + 1] for index in range(0, 16, 2))
        address = mapped
    return tuple(address.packed)


def _pattern(text: str) -> Pattern:
    if text == "*":
        return Pattern()
    if numbers := numbers_of(text):
        return Pattern(tuple(number.__eq__ for number in numbers))
    if ":" in text:
        return Pattern(tuple(_part(piece, text, 16, 0xFFFF) for piece in _groups(text)))
    pieces = text.split(".")
    if len(pieces) != 4:
        raise AddressError(f"{text!r} is no address: write four parts like 10.1.2.3, or 10.1.2.*, or *")
    return Pattern(tuple(_part(piece, text, 10, 255) for piece in pieces))


def _groups(text: str) -> list[str]:
    """The eight parts of IPv6, with those that `::` stands for."""
    first, gap, last = text.partition("::")
    first_groups = first.split(":") if first else []
    last_groups = last.split(":") if last else []
    missing = 8 - len(first_groups) - len(last_groups)
    if (gap and missing < 1) or (not gap and missing) or "::" in last:
        raise AddressError(f"{text!r} is no IPv6 address of eight parts")
    return [*first_groups, *["0"] * missing, *last_groups]


def _part(piece: str, text: str, base: int, largest: int) -> Part:
    def number(digits: str) -> int:
        try:
            result = int(digits, base) if digits.strip().isalnum() else -1
        except ValueError:
            result = -1
        if not 0 <= result <= largest:
            raise AddressError(
                f"{text!r} is no address: {digits!r} is not from 0 to {largest:{'x' if base == 16 else 'd'}}"
            )
        return result

    piece = piece.strip()
    if piece == "*":
        return lambda value: True
    if piece.startswith("{") and piece.endswith("}"):
        values = frozenset(number(entry) for entry in piece[1:-1].split(","))
        return values.__contains__
    first, dash, last = piece.partition("-")
    if dash:
        span = range(number(first), number(last) + 1)
        if not span:
            raise AddressError(f"{text!r} is no address: {piece} is a range without a value in it")
        return span.__contains__
    return number(piece).__eq__
