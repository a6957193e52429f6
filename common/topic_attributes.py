"""Attributes of topics, as 5.x has them: which there are, and the text that changes them, `+message.type=FIFO,-other`.

A 4.9 broker or name server sees none of them: it skips the field in bodies and files.

Java: common/attribute/AttributeParser.java, AttributeUtil.java, TopicMessageType.java; common/TopicAttributes.java
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketlet.common.errors import RocketletError

MESSAGE_TYPE: Final = "message.type"
NORMAL, FIFO, DELAY, TRANSACTION, MIXED = "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"
UNSPECIFIED: Final = "UNSPECIFIED"
MESSAGE_TYPES: Final = (UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, MIXED)

_LONGEST_CHANGE = 1024


class InvalidAttributes(RocketletError):
    """A change of attributes that makes no sense; the text says which part."""


def changed_attributes(old: Mapping[str, str], change: str) -> dict[str, str]:
    """The attributes after a change. Raises InvalidAttributes."""
    if len(change) > _LONGEST_CHANGE:
        raise InvalidAttributes(f"a change of attributes of {len(change)} characters; {_LONGEST_CHANGE} are allowed")
    attributes = dict(old)
    named = set()
    for part in filter(None, change.split(",")):
        sign, (name, _, value) = part[0], part[1:].partition("=")
        if sign not in "+-" or not name or (sign == "+") != bool(value):
            raise InvalidAttributes(f"{part!r} is no change of an attribute; write +name=value or -name")
        if name in named:
            raise InvalidAttributes(f"the attribute {name} is changed twice")
        named.add(name)
        if name != MESSAGE_TYPE:
            raise InvalidAttributes(f"topics have no attribute {name} here; there is {MESSAGE_TYPE}")
        if sign == "-":
            attributes.pop(name, None)
        elif value not in MESSAGE_TYPES:
            raise InvalidAttributes(f"{name} is one of {', '.join(MESSAGE_TYPES)}, not {value!r}")
        else:
            attributes[name] = value
    return attributes


def message_type(attributes: Mapping[str, str]) -> str:
    """What a topic takes: one type, or MIXED; NORMAL where nothing is said."""
    return attributes.get(MESSAGE_TYPE, NORMAL)
