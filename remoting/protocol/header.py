"""Custom headers: typed structs in our code, flat maps of text on the wire.

A header is a msgspec Struct whose attributes are RocketMQ's field names (`queueOffset`). `to_ext` writes it as Java
does: numbers in decimal, booleans as `true`/`false`, None not at all. `from_ext` reads what real clients write:

- numbers as text, by their decimal form alone;
- a boolean is true for `true` in any case and for `1` (from C++ clients), else false;
- a missing or non-numeric field takes its default; without a default it is a HeaderError that names it (RocketMQ would
  fail later, with a null pointer);
- fields that nobody reads are ignored: `bname`, `ReqT`, those of ACL.

Fields without a default come first in a struct: its request cannot be served without them.

Java: remoting/CommandCustomHeader.java, remoting/protocol/RemotingCommand.java (decodeCommandCustomHeader)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from rocketlet.remoting.errors import HeaderError

# Java's int and long: a value outside their range is not a number, there or here.
Int = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


# What msgspec raises for undecodable bytes; the last one for values nested a thousand deep.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Header(Struct, gc=False):
    """Root of all custom headers. `gc=False`: they hold text and numbers only, so they cannot be part of a cycle."""


HeaderT = TypeVar("HeaderT", bound=Header)


def from_ext(cls: type[HeaderT], ext: Mapping[str, str] | None) -> HeaderT:
    """The typed header from a map. Raises HeaderError."""
    try:
        return msgspec.convert(ext or {}, cls, strict=False)
    except msgspec.ValidationError:
        return _from_odd_ext(cls, ext or {})


def to_ext(header: Header) -> dict[str, str]:
    """The map as sent; None is left out."""
    ext = {}
    for name, attribute in _names(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            ext[name] = value if type(value) is str else text_of(value)
    return ext


def text_of(value: Any) -> str:
    """One value as Java formats it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


@lru_cache(None)
def _names(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    """Name on the wire and attribute of every field; there are as many entries as there are header classes."""
    info = msgspec.structs.fields(cls)
    return tuple((field.encode_name, field.name) for field in info)


def _from_odd_ext(cls: type[HeaderT], ext: Mapping[str, str]) -> HeaderT:
    """Field by field, for a map that the fast path refuses."""
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
        number = int(text.strip())  # Java accepts "+5" and "007" too
        return msgspec.convert(number, kind)
    except (ValueError, msgspec.ValidationError):
        return UNSET
