"""A queue of a topic in bodies: in lists and, beyond JSON, as the key of a map.

fastjson writes a map keyed by objects with the object itself as key: `{{"brokerName":"b","queueId":0,"topic":"t"}:5}`.
All Java tools read that form and some read no other, so we write it; `read_object_map` reads it.

Java: common/message/MessageQueue.java
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from rocketlet.common import fastjson
from rocketlet.common.json_pieces import in_pieces
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
        """The queue in the form used elsewhere."""
        return MessageQueue(self.topic, self.brokerName, self.queueId)


def object_map_pieces(table: Mapping[MessageQueue, Any]) -> Iterator[bytes]:
    """What `object_map` writes, a piece at a time."""
    prefix = b"{"
    for part in in_pieces(table.items()):
        yield prefix + bytes(object_map(dict(part)))[1:-1]
        prefix = b","
    yield b"{}" if prefix == b"{" else b"}"


class WrittenMap(dict[MessageQueue, Any]):
    """A map already encoded as JSON: a large one is written in pieces, so that other tasks can run."""

    def __init__(self, table: Mapping[MessageQueue, Any], pieces: Iterable[msgspec.Raw]) -> None:
        """The pieces are parts of the table, each written by `object_map`."""
        super().__init__(table)
        self.written = msgspec.Raw(b"{%b}" % b",".join(bytes(piece)[1:-1] for piece in pieces))


def object_map(table: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """The map with the queues themselves as keys."""
    if isinstance(table, WrittenMap):
        return table.written
    return fastjson.dumps_object_keys([(WireQueue.of(queue), value) for queue, value in table.items()])


def read_object_map(table: Any, kind: Any) -> dict[MessageQueue, Any]:
    """Such a map as read by `fastjson.loads`, with its values converted to `kind`. Raises BodyError."""
    if not isinstance(table, dict):
        raise BodyError(f"expected a map of queues, not {type(table).__name__}")
    try:
        return {
            msgspec.json.decode(key, type=WireQueue, strict=False).queue: msgspec.convert(value, kind, strict=False)
            for key, value in table.items()
        }
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BodyError(f"a map of queues cannot be read: {error}") from None
