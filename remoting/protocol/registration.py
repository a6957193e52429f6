"""A broker at its name servers: register (103), unregister (104), ask whether anything has changed (322).

The body of 103 is JSON, or one zlib stream of it in pieces:

    int32 n, n bytes     DataVersion as JSON
    int32 count          topics
      int32 n, n bytes   "<topic> <read queues> <write queues> <perm> <SINGLE_TAG|MULTI_TAG>", in 5.x also attributes
    int32 n, n bytes     list of filter servers as JSON
    (what follows comes from brokers of 5.x alone and is not read)

Java: common/protocol/body/RegisterBrokerBody.java, common/protocol/header/namesrv/RegisterBrokerRequestHeader.java
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import field

from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.configuration import FILTER_TYPES, DataVersion, TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.header import Header, Int, Long

# A topic takes 40 bytes or so: room for millions of them, and an end to what a few compressed bytes can demand.
MAX_INFLATED = 256 << 20


class RegisterBrokerHeader(Header):
    """103. `bodyCrc32` covers the body as sent; 0 or nothing: unchecked. `haServerAddr` is where slaves ask.

    `loopbackAddr` is ours: where clients on the broker's own host may be sent instead of to `brokerAddr`. A broker
    says it when nobody chose its address and it listens on loopback too; RocketMQ's name server does not look at it.
    """

    brokerId: Long
    brokerName: str = ""
    brokerAddr: str = ""
    clusterName: str = ""
    haServerAddr: str = ""
    compressed: bool = False
    bodyCrc32: Int | None = None
    loopbackAddr: str | None = None


class RegisterBrokerAnswerHeader(Header):
    """The answer to 103: the master's addresses, for a slave that has one."""

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnregisterBrokerHeader(Header):
    """104."""

    brokerId: Long
    brokerName: str = ""
    brokerAddr: str = ""
    clusterName: str = ""


class QueryDataVersionHeader(Header):
    """322; its body is a DataVersion."""

    brokerId: Long
    brokerName: str = ""
    brokerAddr: str = ""
    clusterName: str = ""


class QueryDataVersionAnswerHeader(Header):
    """The answer to 322; the body is what the name server has, if it has something."""

    changed: bool


class RegisterBrokerBody(Body):
    """All topics of a broker. The name that counts is the one inside each TopicConfig."""

    filterServerList: list[str] = field(default_factory=list)
    topicConfigSerializeWrapper: TopicConfigTable = field(default_factory=TopicConfigTable)

    def to_compressed(self) -> bytes:
        """The zlib form; topicSysFlag and order are lost in it."""
        table = self.topicConfigSerializeWrapper
        parts = [_sized(table.dataVersion.to_json()), len(table.topicConfigTable).to_bytes(4, "big")]
        for topic in table.topicConfigTable.values():
            numbers = f"{topic.readQueueNums} {topic.writeQueueNums} {topic.perm}"
            parts.append(_sized(f"{topic.topicName} {numbers} {topic.topicFilterType}".encode()))
        parts.append(_sized(msgspec.json.encode(self.filterServerList)))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def from_compressed(cls, data: bytes | memoryview) -> RegisterBrokerBody:
        """Out of the zlib form. Raises BodyError."""
        raw = _inflate(data)
        version, at = _cut(raw, 0)
        count, at = int.from_bytes(raw[at : at + 4], "big", signed=True), at + 4
        topics = {}
        for _ in range(count):
            line, at = _cut(raw, at)
            topic = _topic_of(line)
            topics[topic.topicName] = topic
        servers, at = _cut(raw, at)
        table = TopicConfigTable(DataVersion.from_json(version), topics)
        try:
            return cls(msgspec.json.decode(servers or b"[]", type=list[str]), table)
        except msgspec.DecodeError as error:
            raise BodyError(f"the list of filter servers in a registration cannot be read: {error}") from None


def body_crc32(body: bytes | memoryview) -> int:
    """The header field: CRC-32 of the body as sent, without the top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _cut(raw: bytes, at: int) -> tuple[bytes, int]:
    """The piece that begins at `at`, and where the next one does."""
    begin = at + 4
    end = begin + int.from_bytes(raw[at:begin], "big", signed=True)
    if len(raw) < begin or not begin <= end <= len(raw):
        raise BodyError(f"a compressed registration ends inside the piece at byte {at}")
    return raw[begin:end], end


def _inflate(data: bytes | memoryview) -> bytes:
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(data, MAX_INFLATED)
    except zlib.error as error:
        raise BodyError(f"a compressed registration is no zlib stream: {error}") from None
    if inflate.unconsumed_tail:
        raise BodyError(f"a compressed registration inflates to more than {MAX_INFLATED >> 20} MiB")
    return raw


def _topic_of(line: bytes) -> TopicConfig:
    columns = line.decode("utf-8", "replace").split(" ")
    if len(columns) not in (5, 6) or columns[4] not in FILTER_TYPES:
        raise BodyError(f"a topic of a compressed registration is {line[:200]!r}")
    try:
        read, write, perm = map(int, columns[1:4])
    except ValueError:
        raise BodyError(f"a topic of a compressed registration is {line[:200]!r}") from None
    return TopicConfig(
        perm=perm, readQueueNums=read, topicFilterType=columns[4], topicName=columns[0], writeQueueNums=write
    )
