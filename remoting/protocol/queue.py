"""A queue of a topic as bodies carry it, in lists and, outside JSON's rules, as the key of a map.

fastjson writes a map keyed by objects with the object itself as key: `{{"brokerName":"b","queueId":0,"topic":"t"}:5}`.
All Java tools read that form and some read no other, so we write it; read it with `read_object_map`.

Java: common/message/MessageQueue.java
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rocketlet.common import fastjson
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.header import Int


class WireQueue(msgspec.Struct, frozen=True, order=True):
    """`{"brokerName":"broker-a","queueId":0,"topic":"T1"}`."""

    brokerName: str
    queueId: Int
    topic: str

    @classmethod
    def of(cls, queue: MessageQueue) -> WireQueue:
        """A queue as bodies carry it."""
        return cls(queue.broker_name, queue.queue_id, queue.topic)

    @property
    def queue(self) -> MessageQueue:
        """The same queue as the rest of the code knows it."""
        return MessageQueue(self.topic, self.brokerName, self.queueId)


class WrittenMap(dict[MessageQueue, Any]):
    """A map whose JSON is there already: a large one is written in pieces, so that others get their turn."""

    def __init__(self, table: Mapping[MessageQueue, Any], pieces: Iterable[msgspec.Raw]) -> None:
        """The pieces are parts of the table, each as `object_map` writes it."""
        super().__init__(table)
        self.written = msgspec.Raw(b"{%b}" % b",".join(bytes(piece)[1:-1] for piece in pieces))


def object_map(table: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """The map with the queues themselves as keys."""
    if isinstance(table, WrittenMap):
        return table.written
    return fastjson.dumps_object_keys([(WireQueue.of(queue), value) for queue, value in table.items()])


def read_object_map(table: Any, kind: Any) -> dict[MessageQueue, Any]:
    """What `fastjson.loads` made of such a map, its values converted to `kind`. Raises BodyError."""
    if not isinstance(table, dict):
        raise BodyError(f"expected a map of queues, not {type(table).__name__}")
    try:
        return {
            msgspec.json.decode(key, type=WireQueue, strict=False).queue: msgspec.convert(value, kind, strict=False)
            for key, value in table.items()
        }
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BodyError(f"a map of queues cannot be read: {error}") from None
