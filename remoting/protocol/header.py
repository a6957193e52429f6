"""Custom headers: typed structs on our side, flat maps of text on the wire.

A header is a msgspec Struct whose attributes are RocketMQ's field names (`queueOffset`). `to_ext` writes it as Java
does: numbers in decimal, booleans as `true`/`false`, None not at all. `from_ext` reads what real clients write:

- numbers as text, by their decimal form alone;
- a boolean is true for `true` in any case and for `1` (a C++ client's), else false;
- a field that is missing, or no number, takes its default; without default (RocketMQ would fail on it later, with a
  null pointer) it is a HeaderError that names it;
- fields without a reader are left out: `bname`, `ReqT`, those of ACL.

Fields without default come first in a struct and are what its request cannot be served without.

Java: remoting/CommandCustomHeader.java, remoting/protocol/RemotingCommand.java (decodeCommandCustomHeader)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from rocketlet.remoting.errors import HeaderError

# Java's int and long: a number outside them is no number, neither there nor here.
Int = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


# What msgspec raises for bytes it cannot take; the last for values nested a thousand deep.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Header(Struct, gc=False):
    """Root of all custom headers. `gc=False`: they hold text and numbers only, so no cycle can begin in one."""


HeaderT = TypeVar("HeaderT", bound=Header)


def from_ext(cls: type[HeaderT], ext: Mapping[str, str] | None) -> HeaderT:
    """The typed header out of the map. Raises HeaderError."""
    try:
        return msgspec.convert(ext or {}, cls, strict=False)
    except msgspec.ValidationError:
        return _from_odd_ext(cls, ext or {})


def to_ext(header: Header) -> dict[str, str]:
    """The map that travels; None is left out."""
    ext = {}
    for name, attribute in _names(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            ext[name] = value if type(value) is str else text_of(value)
    return ext


def text_of(value: Any) -> str:
    """One value as Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


@lru_cache(None)
def _names(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    """Name on the wire and attribute of every field; there are as many entries as there are header classes."""
    info = msgspec.structs.fields(cls)
    return tuple((field.encode_name, field.name) for field in info)


def _from_odd_ext(cls: type[HeaderT], ext: Mapping[str, str]) -> HeaderT:
    """Field by field, for a map with something in it that the quick way refuses."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        text = ext.get(field.encode_name)
        value = UNSET if text is None else _read(text, field.type)
        if value is not UNSET:
            values[field.name] = value
        elif field.required:
            raise HeaderError(f"the header field {field.encode_name} is {'missing' if text is None else 'no number'}")
    return cls(**values)


def _read(text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        pass
    if kind is bool or kind == bool | None:
        return text.strip().lower() == "true"
    try:
        number = int(text.strip())  # Java takes "+5" and "007" too
        return msgspec.convert(number, kind)
    except (ValueError, msgspec.ValidationError):
        return UNSET
