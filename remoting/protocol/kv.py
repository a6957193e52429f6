"""The name server's table of keys and values by namespace: 100, 101, 102, 219. Order topics are kept in it.

Java: common/protocol/header/namesrv/PutKVConfigRequestHeader.java and its neighbours, common/protocol/body/KVTable.java
"""

from __future__ import annotations

from typing import Any, Self

from msgspec import field

from rocketlet.remoting.protocol.body import Body, part
from rocketlet.remoting.protocol.header import Header, text_of

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # topic -> `broker:queues;broker:queues`


class PutKVConfigHeader(Header):
    """100. A field that is missing is refused with code 1 by the name server."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class KVConfigHeader(Header):
    """101 and 102: read, delete."""

    namespace: str | None = None
    key: str | None = None


class KVConfigAnswerHeader(Header):
    """The answer to 101."""

    value: str | None = None


class KVNamespaceHeader(Header):
    """219: all of one namespace."""

    namespace: str | None = None


class KVTable(Body):
    """Names and texts: the answer to 219, 28 and 103."""

    table: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        table = part(value, "table", dict[str, Any], {})
        return cls({key: text_of(inner) for key, inner in table.items()})
