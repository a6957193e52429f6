"""JSON bodies: typed structs, written compactly, read with all the variations of fastjson and other clients.

Written: no blanks (the Go client takes route bodies apart by string operations), numeric keys quoted, None left out, no
references. Read: numbers as text and text as numbers, bare numeric keys, object keys, trailing commas, `$ref`; null is
the same as missing; unknown keys are ignored. Plain JSON of the right types costs one pass by msgspec; the rest goes
through `common.fastjson`, which is slow: each class limits how many values it may read (`odd_values`). Bodies
that servers read keep the default, which holds the loop for 20 ms at most; answers read by clients and tools may be
larger, because RocketMQ writes routes and tables of queues in fastjson's dialect. Those that servers read and that are
lists of objects limit these too (`most_objects`): 350,000 times `{}` took 350 ms, and as long again to go through.

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


ODD_VALUES = 8_000
ODD_VALUES_OF_ANSWERS = 1_000_000
MANY_OBJECTS = 10_000


class Body(msgspec.Struct):
    """Root of all bodies."""

    odd_values: ClassVar[int] = ODD_VALUES
    most_objects: ClassVar[int | None] = None

    def to_json(self) -> bytes:
        """The encoded body."""
        return fastjson.dumps(self.builtins())

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> Self:
        """The decoded body. Raises BodyError."""
        data = bytes(data)
        if cls.most_objects is not None and len(data) > cls.most_objects < data.count(b"{") - 1:
            raise BodyError(f"the body is no {cls.__name__}: more than {cls.most_objects} objects are in it")
        if b'"$ref"' in data:
            return cls.from_odd_json(data)
        try:
            body: Self = _decoder(cls).decode(data)
            return body
        except UNDECODABLE:
            return cls.from_odd_json(data)  # not plain JSON of this shape, or broken

    @classmethod
    def from_odd_json(cls, data: bytes) -> Self:
        """Decode with the lenient reader. Raises BodyError."""
        try:
            return cls.from_builtins(without_nulls(fastjson.loads(data, max_values=cls.odd_values)))
        except (fastjson.InvalidJson, *UNDECODABLE) as error:
            raise BodyError(f"the body is no {cls.__name__}: {error}") from None

    def builtins(self) -> Any:
        """What `to_json` encodes: fields without those that are None."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if value is not None and value is not msgspec.UNSET}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        """The body from the lenient reader's values."""
        return msgspec.convert(value, cls, strict=False)


class QueueKeyedBody(Body):
    """Root of bodies with maps keyed by queues: these are not JSON, so only the lenient reader can read them.

    Subclasses implement `builtins` and `from_builtins`.
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
    """One field of an object from the lenient reader. Raises msgspec.ValidationError."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"expected an object, not {type(value).__name__}")
    return msgspec.convert(value.get(name, default), kind, strict=False)


def name_ordinals(value: Any, enums: Mapping[str, tuple[str, ...]]) -> None:
    """Replace ordinals in these fields by names: C++ and Go clients send ordinals."""
    if isinstance(value, dict):
        for field, names in enums.items():
            ordinal = value.get(field)
            if isinstance(ordinal, int) and 0 <= ordinal < len(names):
                value[field] = names[ordinal]


@lru_cache(None)
def _decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    """One decoder per class; there are as many entries as classes."""
    return msgspec.json.Decoder(cls, strict=False)
