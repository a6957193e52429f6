"""Bodies in JSON: typed structs, written compactly, read with everything that fastjson and other clients do to them.

Written: no blanks (the Go client takes route bodies apart by string operations), numeric keys quoted, None left out, no
references. Read: numbers as text and text as numbers, bare numeric keys, object keys, trailing commas, `$ref`; null is
the same as missing; unknown keys are left out. Plain JSON of the right types costs one pass by msgspec, the rest goes
through `common.fastjson`, which is slow: how many values it may read is a limit of each class (`odd_values`). Bodies
that servers read keep the default, which holds the loop for 20 ms at most; answers read by clients and tools may be
larger, because RocketMQ writes routes and tables of queues in fastjson's dialect.

Java: remoting/protocol/RemotingSerializable.java
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from rocketlet.common import fastjson
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.header import UNDECODABLE

Part = TypeVar("Part")

_encode = msgspec.json.Encoder().encode

ODD_VALUES = 8_000
ODD_VALUES_OF_ANSWERS = 1_000_000


class Body(msgspec.Struct):
    """Root of all bodies."""

    odd_values: ClassVar[int] = ODD_VALUES

    def to_json(self) -> bytes:
        """The body as it travels."""
        return _encode(self.builtins())

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> Self:
        """The body out of its bytes. Raises BodyError."""
        data = bytes(data)
        if b'"$ref"' in data:
            return cls.from_odd_json(data)
        try:
            body: Self = _decoder(cls).decode(data)
            return body
        except UNDECODABLE:
            return cls.from_odd_json(data)  # of another shape than plain JSON has, or broken

    @classmethod
    def from_odd_json(cls, data: bytes) -> Self:
        """The tolerant way. Raises BodyError."""
        try:
            return cls.from_builtins(without_nulls(fastjson.loads(data, most=cls.odd_values)))
        except (fastjson.InvalidJson, *UNDECODABLE) as error:
            raise BodyError(f"the body is no {cls.__name__}: {error}") from None

    def builtins(self) -> Any:
        """What `to_json` encodes: fields that are None left out."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if value is not None and value is not msgspec.UNSET}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        """The body out of what the tolerant reader found."""
        return msgspec.convert(value, cls, strict=False)


class QueueKeyedBody(Body):
    """Root of bodies with maps keyed by queues: their type is not JSON's, so only the tolerant way can read them.

    They write `builtins` and `from_builtins` themselves.
    """

    odd_values: ClassVar[int] = ODD_VALUES_OF_ANSWERS

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> Self:
        return cls.from_odd_json(bytes(data))


def without_nulls(value: Any) -> Any:
    """The same value without the fields that are null, so that their defaults hold."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def part(value: Any, name: str, kind: type[Part], default: Any) -> Part:
    """One field of an object that was read the tolerant way. Raises msgspec.ValidationError."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"expected an object, not {type(value).__name__}")
    return msgspec.convert(value.get(name, default), kind, strict=False)


def name_ordinals(value: Any, enums: Mapping[str, tuple[str, ...]]) -> None:
    """Turn the ordinals among these fields of an object into names: C++ and Go clients send them."""
    if isinstance(value, dict):
        for field, names in enums.items():
            ordinal = value.get(field)
            if isinstance(ordinal, int) and 0 <= ordinal < len(names):
                value[field] = names[ordinal]


@lru_cache(None)
def _decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    """One decoder a class of body; there are as many entries as there are classes."""
    return msgspec.json.Decoder(cls, strict=False)
