"""Where topics are: routes (105), clusters (106), lists of topics (206, 216, 224, 304, 305, 311 to 313), and removing
and restoring a broker's write permission (205, 327).

Java: common/protocol/route/TopicRouteData.java, common/protocol/body/ClusterInfo.java, TopicList.java,
common/protocol/header/namesrv/GetRouteInfoRequestHeader.java and its neighbours
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

import msgspec
from msgspec import field

from rocketlet.common.json_pieces import object_pieces
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.header import Header, Int

MANY_VALUES = 200_000  # of 16,000 brokers, whom it takes 0.8 s to read


class GetRouteInfoHeader(Header):
    """105."""

    topic: str = ""
    acceptStandardJsonOnly: bool | None = None


class BrokerData(Body):
    """The brokers of one name: broker id -> address; 0 is the master."""

    brokerAddrs: dict[int, str] = field(default_factory=dict)
    brokerName: str = ""
    cluster: str = ""


class QueueData(Body):
    """How many queues of a topic a broker name has.

    The last field was `topicSynFlag` up to 4.8, and still is for the Go client: both are written, either is read.
    """

    brokerName: str = ""
    perm: Int = 6
    readQueueNums: Int = 0
    topicSynFlag: Int | None = None
    topicSysFlag: Int = 0
    writeQueueNums: Int = 0

    def __post_init__(self) -> None:
        self.topicSysFlag = self.topicSysFlag or self.topicSynFlag or 0
        self.topicSynFlag = self.topicSysFlag


class TopicRouteData(Body):
    """The answer to 105. At most one entry per broker name in either list."""

    odd_values: ClassVar[int] = MANY_VALUES  # Java writes broker ids without quotes

    brokerDatas: list[BrokerData] = field(default_factory=list)
    filterServerTable: dict[str, list[str]] = field(default_factory=dict)
    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = field(default_factory=list)


class ClusterInfo(Body):
    """The answer to 106: broker name -> brokers, cluster -> broker names. Both must be present."""

    odd_values: ClassVar[int] = MANY_VALUES  # likewise

    brokerAddrTable: dict[str, BrokerData] = field(default_factory=dict)
    clusterAddrTable: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def pieces(brokers: Iterable[tuple[str, BrokerData]], clusters: Iterable[tuple[str, list[str]]]) -> Iterator[bytes]:
        """Its JSON, a piece for each few hundred rows."""
        yield b'{"brokerAddrTable":'
        yield from object_pieces(brokers)
        yield b',"clusterAddrTable":'
        yield from object_pieces(clusters)
        yield b"}"


class TopicList(Body):
    """The answer to 206, 224, 304, 305, 311, 312 and 313; `brokerAddr` to 304 alone."""

    topicList: list[str] = field(default_factory=list)
    brokerAddr: str | None = None

    @staticmethod
    def pieces(parts: Iterable[list[str]]) -> Iterator[bytes]:
        """Its JSON without an address, a piece for each part of the topics."""
        yield b'{"topicList":['
        prefix = b""
        for part in parts:
            yield prefix + msgspec.json.encode(part)[1:-1] if part else b""
            prefix = b"," if part else prefix
        yield b"]}"


class GetBrokerMembersHeader(Header):
    """901 (5.x)."""

    brokerName: str = ""
    clusterName: str = ""


class BrokerMembers(Body):
    """The brokers of one name, for the answer to 901 (5.x)."""

    brokerMemberGroup: BrokerData

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        return msgspec.convert(value, cls, strict=False)


class WritePermHeader(Header):
    """205 and 327."""

    brokerName: str = ""


class WipeWritePermAnswerHeader(Header):
    """The answer to 205."""

    wipeTopicCount: Int


class AddWritePermAnswerHeader(Header):
    """The answer to 327."""

    addTopicCount: Int


class DeleteTopicInNamesrvHeader(Header):
    """216: from all brokers, or from those of one cluster."""

    topic: str = ""
    clusterName: str | None = None


class GetTopicsByClusterHeader(Header):
    """224."""

    cluster: str = ""
