"""What `mqadmin` reads from a broker: who is connected (203, 204, 328), what was stored and consumed (202, 208, 303,
315, 317), queues entry by entry (321), clients through the broker (307, 309).

Java: common/admin/ConsumeStats.java, TopicStatsTable.java, common/protocol/body/ConsumerConnection.java and its
neighbours, common/protocol/header/GetConsumeStatsRequestHeader.java and its neighbours
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import msgspec
from msgspec import field

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.protocol.body import Body, QueueKeyedBody, name_ordinals, part
from rocketlet.remoting.protocol.header import Header, Int, Long, text_of
from rocketlet.remoting.protocol.membership import SubscriptionData
from rocketlet.remoting.protocol.queue import WireQueue, object_map, object_map_pieces, read_object_map

_encode = msgspec.json.Encoder().encode


class TopicHeader(Header):
    """202 and 300: a topic."""

    topic: str = ""


class ConsumerGroupHeader(Header):
    """203: a consumer group."""

    consumerGroup: str = ""


class ProducerGroupHeader(Header):
    """204: a producer group."""

    producerGroup: str = ""


class GetConsumeStatsHeader(Header):
    """208: a group, in all its topics or in one."""

    consumerGroup: str = ""
    topic: str | None = None


class QueryConsumeTimeSpanHeader(Header):
    """303."""

    topic: str = ""
    group: str = ""


class ViewBrokerStatsHeader(Header):
    """315: one counter of one subject, `TOPIC_PUT_NUMS` of `TopicA`."""

    statsName: str = ""
    statsKey: str = ""


class GetBrokerConsumeStatsHeader(Header):
    """317: all groups: only the ordered ones, or only the others."""

    isOrder: bool = False


class QueryConsumeQueueHeader(Header):
    """321: `count` entries of a queue from `index` on."""

    queueId: Int
    index: Long
    topic: str = ""
    count: Int = 32
    consumerGroup: str | None = None


class GetConsumerRunningInfoHeader(Header):
    """307, admin to broker and broker to client."""

    consumerGroup: str = ""
    clientId: str = ""
    jstackEnable: bool = False


class ConsumeMessageDirectlyHeader(Header):
    """309: have this client consume this message now. The broker adds its name and the message itself."""

    consumerGroup: str = ""
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None


class GroupList(Body):
    """The answer to 300."""

    groupList: list[str] = field(default_factory=list)


class ClientConnection(Body):
    """One connected client. `language` by its name."""

    clientAddr: str = ""
    clientId: str = ""
    language: str = "JAVA"
    version: Int = 0


class ConsumerConnection(Body):
    """The answer to 203."""

    connectionSet: list[ClientConnection] = field(default_factory=list)
    consumeFromWhere: str = "CONSUME_FROM_LAST_OFFSET"
    consumeType: str = "CONSUME_PASSIVELY"
    messageModel: str = "CLUSTERING"
    subscriptionTable: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body):
    """The answer to 204."""

    connectionSet: list[ClientConnection] = field(default_factory=list)


class ProducerInfo(Body):
    """One producer; `remoteIP` is `/1.2.3.4:55`, with Java's leading slash."""

    clientId: str = ""
    language: str = "JAVA"
    lastUpdateTimestamp: Long = 0
    remoteIP: str = ""
    version: Int = 0


class ProducerTableInfo(Body):
    """The answer to 328: producer group -> producers."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)

    @staticmethod
    def pieces(groups: Iterable[tuple[str, list[ProducerInfo]]]) -> Iterator[bytes]:
        """Its JSON, in pieces. A group with many producers is repeated with the next of them."""
        last = None
        for group, producers in groups:
            prefix = b"," if group == last else (b'{"data":{' if last is None else b"],") + _encode(group) + b":["
            yield prefix + _encode(producers)[1:-1]
            last = group
        yield b'{"data":{}}' if last is None else b"]}}"


class TopicOffset(Body):
    """The offsets of one queue."""

    lastUpdateTimestamp: Long = 0
    maxOffset: Long = 0
    minOffset: Long = 0


class TopicStatsTable(QueueKeyedBody):
    """The answer to 202: one entry per write queue."""

    offsetTable: dict[MessageQueue, TopicOffset] = field(default_factory=dict)

    def builtins(self) -> Any:
        return {"offsetTable": object_map(self.offsetTable)}

    def pieces(self) -> Iterator[bytes]:
        """Its JSON, a piece at a time."""
        yield b'{"offsetTable":'
        yield from object_map_pieces(self.offsetTable)
        yield b"}"

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        return cls(read_object_map(part(value, "offsetTable", object, {}), TopicOffset))


class OffsetWrapper(Body):
    """How far a queue is consumed. `lastTimestamp`: store time of the last message consumed."""

    brokerOffset: Long = 0
    consumerOffset: Long = 0
    lastTimestamp: Long = 0


class ConsumeStats(QueueKeyedBody):
    """The answer to 208: one entry per read queue of each topic in which the group has a position."""

    offsetTable: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consumeTps: float = 0.0

    def builtins(self) -> Any:
        return {"consumeTps": self.consumeTps, "offsetTable": object_map(self.offsetTable)}

    def pieces(self) -> Iterator[bytes]:
        """Its JSON, a piece at a time."""
        yield b'{"consumeTps":%b,"offsetTable":' % _encode(self.consumeTps)
        yield from object_map_pieces(self.offsetTable)
        yield b"}"

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        table = read_object_map(part(value, "offsetTable", object, {}), OffsetWrapper)
        return cls(table, part(value, "consumeTps", float, 0.0))


class ConsumeStatsList(QueueKeyedBody):
    """The answer to 317: a list of maps, group -> list of what 208 answers for its topics."""

    consumeStatsList: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    brokerAddr: str = ""
    totalDiff: Long = 0

    def builtins(self) -> Any:
        groups = [
            {group: [topic_stats.builtins() for topic_stats in stats] for group, stats in entry.items()}
            for entry in self.consumeStatsList
        ]
        return {"brokerAddr": self.brokerAddr, "consumeStatsList": groups, "totalDiff": self.totalDiff}

    @staticmethod
    def begin(broker: str) -> bytes:
        """Its JSON up to the first entry of the list."""
        return b'{"brokerAddr":%b,"consumeStatsList":[' % _encode(broker)

    @staticmethod
    def end(total_lag: int) -> bytes:
        """And from the last one on."""
        return b'],"totalDiff":%d}' % total_lag

    @staticmethod
    def entry(group: str, stats: Iterable[ConsumeStats]) -> Iterator[bytes]:
        """One entry, a piece at a time."""
        yield b"{%b:[" % _encode(group)
        for number, topic_stats in enumerate(stats):
            yield b"," if number else b""
            yield from topic_stats.pieces()
        yield b"]}"

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        groups = [
            {
                group: [ConsumeStats.from_builtins(topic_stats) for topic_stats in stats]
                for group, stats in entry.items()
            }
            for entry in part(value, "consumeStatsList", list[dict[str, list[Any]]], [])
        ]
        return cls(groups, part(value, "brokerAddr", str, ""), part(value, "totalDiff", int, 0))


class BrokerStatsItem(Body):
    """A counter over one span of time."""

    avgpt: float = 0.0
    sum: Long = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """The answer to 315. All three must be present; Java writes references if two are the same object."""

    statsDay: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    statsHour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    statsMinute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class QueueEntry(Body, omit_defaults=True):
    """One unit of a queue as 321 shows it; `eval`: its extension passes the group's filter."""

    physicOffset: Long
    physicSize: Int
    tagsCode: Long
    eval: bool
    bitMap: str | None = None
    extendDataJson: str | None = None
    msg: str | None = None


class ConsumeQueueBody(Body):
    """The answer to 321."""

    maxQueueIndex: Long
    minQueueIndex: Long
    queueData: list[QueueEntry] = field(default_factory=list)
    filterData: str | None = None
    subscriptionData: SubscriptionData | None = None


class QueueTimeSpan(Body):
    """The time span of one queue and the group's position in it, in time (ms) and as text."""

    messageQueue: WireQueue
    minTimeStamp: Long = 0
    maxTimeStamp: Long = 0
    consumeTimeStamp: Long = 0
    delayTime: Long = 0
    minTimeStampStr: str = ""
    maxTimeStampStr: str = ""
    consumeTimeStampStr: str = ""


class ConsumeTimeSpanBody(Body):
    """The answer to 303."""

    consumeTimeSpanSet: list[QueueTimeSpan] = field(default_factory=list)

    @staticmethod
    def pieces(spans: Iterable[list[QueueTimeSpan]]) -> Iterator[bytes]:
        """Its JSON, in pieces."""
        yield b'{"consumeTimeSpanSet":['
        separator = b""
        for piece in spans:
            yield separator + _encode(piece)[1:-1]
            separator = b","
        yield b"]}"


CONSUME_RESULTS = ("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")


class ConsumeMessageDirectlyBody(Body):
    """A client's answer to 309. Go sends the result's ordinal."""

    consumeResult: str = "CR_SUCCESS"
    autoCommit: bool = True
    order: bool = False
    spentTimeMills: Long = 0
    remark: str | None = None

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        name_ordinals(value, {"consumeResult": CONSUME_RESULTS})
        return msgspec.convert(value, cls, strict=False)


class ProcessQueueInfo(Body):
    """One queue at a consumer. `droped` is Java's spelling."""

    cachedMsgCount: Int = 0
    cachedMsgMaxOffset: Long = 0
    cachedMsgMinOffset: Long = 0
    cachedMsgSizeInMiB: Int = 0
    commitOffset: Long = 0
    droped: bool = False
    lastConsumeTimestamp: Long = 0
    lastLockTimestamp: Long = 0
    lastPullTimestamp: Long = 0
    locked: bool = False
    transactionMsgCount: Int = 0
    transactionMsgMaxOffset: Long = 0
    transactionMsgMinOffset: Long = 0
    tryUnlockTimes: Long = 0


class ConsumeStatus(Body):
    """How fast a consumer works on one topic."""

    consumeFailedMsgs: Long = 0
    consumeFailedTPS: float = 0.0
    consumeOKTPS: float = 0.0
    consumeRT: float = 0.0
    pullRT: float = 0.0
    pullTPS: float = 0.0


class ConsumerRunningInfo(QueueKeyedBody):
    """A client's answer to 307: everything about one consumer group in it."""

    properties: dict[str, str] = field(default_factory=dict)
    subscriptionSet: list[SubscriptionData] = field(default_factory=list)
    mqTable: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    statusTable: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None

    def builtins(self) -> Any:
        return {**super().builtins(), "mqTable": object_map(self.mqTable)}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        return cls(
            {key: text_of(inner) for key, inner in part(value, "properties", dict[str, Any], {}).items()},
            part(value, "subscriptionSet", list[SubscriptionData], []),
            read_object_map(part(value, "mqTable", object, {}), ProcessQueueInfo),
            part(value, "statusTable", dict[str, ConsumeStatus], {}),
            value.get("jstack"),
        )
