"""The classes of the messages in `schema.py`; their types are in `messages.pyi`.

Java: rocketmq-proto
"""

from __future__ import annotations

from google.protobuf.message_factory import GetMessageClass

from rocketlet.proxy.wire.schema import PACKAGE, descriptors, enum_names, message_names

_pool = descriptors()
for _name in message_names():
    globals()[_name] = GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{_name}"))
for _name in ("Timestamp", "Duration"):
    globals()[_name] = GetMessageClass(_pool.FindMessageTypeByName(f"google.protobuf.{_name}"))
for _enum in enum_names():
    for _value in _pool.FindEnumTypeByName(f"{PACKAGE}.{_enum}").values:
        globals()[_value.name] = _value.number
