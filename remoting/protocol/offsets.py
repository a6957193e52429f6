"""Offsets: how far a group has consumed (14, 15), where a queue begins and ends (29 to 32), and resetting or copying
offsets (220 to 223, 308, 314; the tables of 43 and 45).

Java: common/protocol/header/QueryConsumerOffsetRequestHeader.java and its neighbours,
common/protocol/body/ResetOffsetBody.java, GetConsumerStatusBody.java, ConsumerOffsetSerializeWrapper.java
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

import msgspec
from msgspec import field

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.protocol.body import ODD_VALUES, ODD_VALUES_OF_ANSWERS, Body, QueueKeyedBody, part
from rocketlet.remoting.protocol.header import Header, Int, Long
from rocketlet.remoting.protocol.queue import WireQueue, object_map, read_object_map


class QueryConsumerOffsetHeader(Header):
    """14: the position of a group in a queue. No position: code 22, never another."""

    queueId: Int
    topic: str = ""
    consumerGroup: str = ""
    bname: str | None = None


class UpdateConsumerOffsetHeader(Header):
    """15, normally one-way: commit a position. Node clients commit -1 for "none"."""

    queueId: Int
    commitOffset: Long
    topic: str = ""
    consumerGroup: str = ""
    bname: str | None = None


class SearchOffsetHeader(Header):
    """29: the offset nearest to a time. With `boundaryType`, of RocketMQ 5: LOWER, the first stored at or after it, or
    UPPER, the last stored at or before it."""

    queueId: Int
    timestamp: Long
    topic: str = ""
    boundaryType: str | None = None
    bname: str | None = None


class QueueHeader(Header):
    """30, 31 and 32: the end, the begin, the time of the first message of a queue."""

    queueId: Int
    topic: str = ""
    bname: str | None = None


class OffsetAnswerHeader(Header):
    """The answer to 14, 29, 30 and 31."""

    offset: Long


class TimestampAnswerHeader(Header):
    """The answer to 32; -1 if there is no message."""

    timestamp: Long


class ResetOffsetHeader(Header):
    """222, admin to broker, and 220, broker to client. Timestamp -1 is the end of the queue."""

    timestamp: Long
    topic: str = ""
    group: str = ""
    isForce: bool = False


class ConsumerStatusHeader(Header):
    """223, admin to broker, and 221, broker to client: what a client has consumed."""

    topic: str = ""
    group: str = ""
    clientAddr: str | None = None


class CloneGroupOffsetHeader(Header):
    """314: a group starts at another one's offsets. Without a topic: in all topics."""

    srcGroup: str = ""
    destGroup: str = ""
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(Header):
    """308: the smallest positions of the groups in `filterGroups` (comma list) beside those of `compareGroup`."""

    compareGroup: str = ""
    topic: str = ""
    filterGroups: str | None = None


class ResetOffsetBody(QueueKeyedBody):
    """New positions by queue. C++ clients need a list instead of the map: `list_json`."""

    offsetTable: dict[MessageQueue, int]

    def builtins(self) -> Any:
        return {"offsetTable": object_map(self.offsetTable)}

    @staticmethod
    def list_json(pieces: Iterable[Iterable[tuple[MessageQueue, int]]]) -> Iterator[bytes]:
        """The form for C++ clients, in pieces."""
        yield b'{"offsetTable":['
        separator = b""
        for piece in pieces:
            entries = [
                {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
                for queue, offset in piece
            ]
            yield separator + msgspec.json.encode(entries)[1:-1]
            separator = b","
        yield b"]}"

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        table = part(value, "offsetTable", object, {})
        if isinstance(table, list):
            entries = msgspec.convert(table, list[_ListedOffset], strict=False)
            return cls({entry.queue: entry.offset for entry in entries})
        return cls(read_object_map(table, Long))


class _ListedOffset(WireQueue, frozen=True):
    offset: Long = 0


class ConsumerStatusBody(QueueKeyedBody):
    """What clients have consumed: by client in the answer to 223, one client's queues in the answer to 221.

    The broker reads clients' answers to 221, so the lenient reader may take 20 ms and no longer.
    """

    odd_values: ClassVar[int] = ODD_VALUES

    messageQueueTable: dict[MessageQueue, int] = field(default_factory=dict)
    consumerTable: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)

    def builtins(self) -> Any:
        clients = {client: object_map(table) for client, table in self.consumerTable.items()}
        return {"consumerTable": clients, "messageQueueTable": object_map(self.messageQueueTable)}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        clients = part(value, "consumerTable", dict[str, Any], {})
        return cls(
            read_object_map(part(value, "messageQueueTable", object, {}), Long),
            {client: read_object_map(table, Long) for client, table in clients.items()},
        )


class OffsetMovedEvent(Body):
    """The body of a message in OFFSET_MOVED_EVENT: a pull's offset was corrected to another."""

    consumerGroup: str
    messageQueue: WireQueue
    offsetNew: Long = 0
    offsetRequest: Long = 0


class ConsumerOffsetTable(Body):
    """The answer to 43, and config/consumerOffset.json: `topic@group` -> queue -> position."""

    odd_values: ClassVar[int] = ODD_VALUES_OF_ANSWERS  # Java writes the numeric keys without quotes

    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)


_begin_of_table = re.compile(rb'\{"offsetTable":\{').match
_row_of_java = re.compile(rb'"([^"\\]*)":\{((?:\d{1,10}:-?\d{1,18}(?:,(?=\d)|(?=\})))*)\}(?:,(?=")|(?=\}))').match


def offset_rows(data: bytes) -> Iterator[tuple[str, dict[int, int]]]:
    """The rows of a ConsumerOffsetTable. Java's, whose numeric keys have no quotes, are found one after another: the
    lenient reader takes half a second for a large table. Raises BodyError, perhaps after some rows."""
    begin = _begin_of_table(data)
    at = begin.end() if begin is not None else 0
    while (row := _row_of_java(data, at)) is not None:
        pairs = (pair.split(b":") for pair in row[2].split(b",") if pair)
        yield row[1].decode("utf-8", "replace"), {int(queue_id): int(offset) for queue_id, offset in pairs}
        at = row.end()
    if begin is None or not data.startswith(b"}", at):
        yield from ConsumerOffsetTable.from_json(data).offsetTable.items()


class DelayOffsetTable(Body):
    """The answer to 45, and config/delayOffset.json: delay level -> position in its queue."""

    offsetTable: dict[int, int] = field(default_factory=dict)


class CorrectionOffsetBody(Body):
    """The answer to 308: queue -> position."""

    correctionOffsets: dict[int, int] = field(default_factory=dict)
