"""Writes proxy/wire/messages.pyi, the types of the gRPC messages, from the table in proxy/wire/schema.py."""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rocketlet.proxy.wire.schema import PACKAGE, descriptors, enum_names, message_names

TARGET = Path(__file__).parent.parent / "proxy" / "wire" / "messages.pyi"
_TYPES = {
    FieldDescriptor.TYPE_STRING: "str",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_FLOAT: "float",
}
_HEAD = '''"""Written by scripts/grpc_stubs.py from schema.py; `make stubs` writes it again."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Literal

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message as _Message
'''


def stubs() -> str:
    """The whole text of messages.pyi."""
    pool = descriptors()
    lines = [_HEAD]
    for enum in enum_names():
        lines += [f"{value.name}: int" for value in pool.FindEnumTypeByName(f"{PACKAGE}.{enum}").values]
    messages = [pool.FindMessageTypeByName(f"google.protobuf.{name}") for name in ("Timestamp", "Duration")]
    messages += [pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in message_names()]
    for message in messages:
        lines += ["", *_class(message)]
    return "\n".join(lines) + "\n"


def _class(message: Descriptor) -> list[str]:
    fields = list(message.fields)
    lines = [f"class {message.name}(_Message):"]
    for field in fields:
        if field.is_repeated or field.message_type is not None:
            lines += ["    @property", f"    def {field.name}(self) -> {_read(field)}: ..."]
        else:
            lines.append(f"    {field.name}: {_one(field)}")
    lines += ["    def __init__(", "        self,", "        *,"]
    lines += [f"        {field.name}: {_written(field)} | None = ...," for field in fields]
    lines += ["    ) -> None: ..."]
    names = [field.name for field in fields if field.has_presence]
    if names:
        lines.append(f"    def HasField(self, field_name: {_literal(names)}) -> bool: ...")
    for oneof in message.oneofs:
        if len(oneof.fields) > 1:
            choice = f"Literal[{', '.join(repr(field.name) for field in oneof.fields)}] | None".replace("'", '"')
            lines.append(f'    def WhichOneof(self, oneof_group: Literal["{oneof.name}"]) -> {choice}: ...')
    return lines


def _literal(names: list[str]) -> str:
    return "Literal[" + ", ".join(f'"{name}"' for name in names) + "]"


def _one(field: FieldDescriptor) -> str:
    return field.message_type.name if field.message_type is not None else _TYPES.get(field.type, "int")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _read(field: FieldDescriptor) -> str:
    if _is_map(field):
        return "MutableMapping[str, str]"
    if field.is_repeated:
        kind = "Composite" if field.message_type is not None else "Scalar"
        return f"Repeated{kind}FieldContainer[{_one(field)}]"
    return _one(field)


def _written(field: FieldDescriptor) -> str:
    if _is_map(field):
        return "Mapping[str, str]"
    return f"Iterable[{_one(field)}]" if field.is_repeated else _one(field)


if __name__ == "__main__":
    TARGET.write_text(stubs(), "utf-8")
    sys.stdout.write(f"{TARGET}\n")
