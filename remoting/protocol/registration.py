"""A broker at its name servers: register (103), unregister (104), ask whether anything has changed (322).

The body of 103 is JSON, or one zlib stream of it in pieces:

    int32 n, n bytes     DataVersion as JSON
    int32 count          topics
      int32 n, n bytes   "<topic> <read queues> <write queues> <perm> <SINGLE_TAG|MULTI_TAG>", in 5.x also attributes
    int32 n, n bytes     list of filter servers as JSON
    (the rest comes only from 5.x brokers and is not read)

Java: common/protocol/body/RegisterBrokerBody.java, common/protocol/header/namesrv/RegisterBrokerRequestHeader.java
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import field

from rocketlet.common.crc import crc32
from rocketlet.common.fastjson import InvalidJson
from rocketlet.common.json_members import ROWS, LongObject
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.configuration import (
    FILTER_TYPES,
    LONGEST_ENTRY,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
)
from rocketlet.remoting.protocol.header import UNDECODABLE, Header, Int, Long

# Of one broker. A topic takes about 40 bytes, and 10 µs to enter the table of a name server.
MAX_TOPICS = 200_000
MAX_INFLATED = 64 << 20
# A registration up to this size is read in one step, in less than 10 ms; a larger one in pieces of it.
_WHOLE = 64 << 10
_MOST_ODD = 1 << 20  # bytes of topics in pieces that are no plain JSON: a lone surrogate, say
_LONGEST_SERVERS = 64 << 10  # a name server takes a hundred of them


class RegisterBrokerHeader(Header):
    """103. `bodyCrc32` covers the body as sent; 0 or missing: unchecked. `haServerAddr` is the address for slaves.

    `loopbackAddr` is ours: the address for clients on the broker's own host, instead of `brokerAddr`. A broker sends it
    when its address is not configured and it listens on loopback too; RocketMQ's name server ignores it. `masterEpoch`
    is ours too: if replicas elect their master, the epoch of the leader that the broker is, or follows.
    """

    brokerId: Long
    brokerName: str = ""
    brokerAddr: str = ""
    clusterName: str = ""
    haServerAddr: str = ""
    compressed: bool = False
    bodyCrc32: Int | None = None
    loopbackAddr: str | None = None
    masterEpoch: Long | None = None


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
    """The answer to 322; the body is the name server's version, if it has one."""

    changed: bool


class RegisterBrokerBody(Body):
    """All topics of a broker. The authoritative name is the one inside each TopicConfig."""

    filterServerList: list[str] = field(default_factory=list)
    topicConfigSerializeWrapper: TopicConfigTable = field(default_factory=TopicConfigTable)

    def to_compressed(self) -> bytes:
        """The zlib form, which loses topicSysFlag and order."""
        table = self.topicConfigSerializeWrapper
        topics = list(table.topicConfigTable.values())
        return b"".join(compressed_pieces(table.dataVersion, len(topics), [topics], self.filterServerList))

    @classmethod
    def from_compressed(cls, data: bytes | memoryview) -> RegisterBrokerBody:
        """Decode the zlib form. Raises BodyError."""
        pieces = list(in_pieces(data, compressed=True))
        body = pieces[-1]
        for piece in pieces[:-1]:
            body.topicConfigSerializeWrapper.topicConfigTable |= piece.topicConfigSerializeWrapper.topicConfigTable
        return body


def json_pieces(table: Iterable[bytes]) -> Iterator[bytes]:
    """A registration without filter servers, out of the JSON of its TopicConfigTable."""
    yield b'{"filterServerList":[],"topicConfigSerializeWrapper":'
    yield from table
    yield b"}"


def compressed_pieces(
    version: DataVersion, count: int, topics: Iterable[Iterable[TopicConfig]], servers: Sequence[str] = ()
) -> Iterator[bytes]:
    """The zlib form of one, a piece for each of some topics. REQUIRES: `count` topics in all."""
    deflate = zlib.compressobj(9)
    yield deflate.compress(_sized(version.to_json()) + count.to_bytes(4, "big"))
    for part in topics:
        yield deflate.compress(b"".join(map(_line_of, part)))
    yield deflate.compress(_sized(msgspec.json.encode(servers))) + deflate.flush()


def is_large(data: bytes | memoryview, *, compressed: bool) -> bool:
    """Whether a registration, or a bare table, should be read in pieces. Raises BodyError."""
    if not compressed:
        return len(data) > _WHOLE
    inflate = zlib.decompressobj()
    _inflate_some(inflate, data, _WHOLE)
    return bool(inflate.unconsumed_tail)


def in_pieces(data: bytes | memoryview, *, compressed: bool, bare: bool = False) -> Iterator[RegisterBrokerBody]:
    """A registration as several, each small enough not to delay other tasks; the last has the version and the filter
    servers. Raises BodyError, also after some pieces. `bare`: it is a TopicConfigTable."""
    return _compressed_pieces(data) if compressed and not bare else _json_pieces(bytes(data), bare)


def _json_pieces(data: bytes, bare: bool) -> Iterator[RegisterBrokerBody]:
    around = data
    if found := _find_topics(data, 0, _WHOLE):
        table = LongObject(data, found.end(), _WHOLE)
        count = odd = 0
        try:
            for members in table:
                try:
                    topics = _decode_topics(members)
                except UNDECODABLE:
                    odd += len(members)
                    if odd > _MOST_ODD:
                        raise
                    topics = TopicConfigTable.from_odd_json(b'{"topicConfigTable":%b}' % members).topicConfigTable
                count += len(topics)
                _check_count(count)
                yield RegisterBrokerBody([], TopicConfigTable(topicConfigTable=topics))
        except (InvalidJson, *UNDECODABLE) as error:
            raise BodyError(f"a topic of a registration cannot be read: {error}") from None
        # What is left is read as a whole, with a mark that is not found unless the topics were where they belong.
        around = data[: found.end() - 1] + b"true" + data[table.at :]
    if len(around) > _WHOLE:
        raise BodyError(f"a registration has {len(around)} bytes besides its topics; at most {_WHOLE} are taken")
    yield _read_without_topics(around, bare)


def _compressed_pieces(data: bytes | memoryview) -> Iterator[RegisterBrokerBody]:
    lines = _Lines(data)
    version = DataVersion.from_json(lines.next_line(LONGEST_ENTRY))
    count = lines.next_number()
    _check_count(count)
    while count > 0:
        topics = {}
        size = 0
        for _ in range(min(count, ROWS)):
            line = lines.next_line(LONGEST_ENTRY)
            topic = _topic_of(line)
            topics[topic.topicName] = topic
            count -= 1
            size += len(line)
            if size > _WHOLE:
                break
        yield RegisterBrokerBody([], TopicConfigTable(version, topics))
    yield RegisterBrokerBody(_filter_servers(lines.next_line(_LONGEST_SERVERS)), TopicConfigTable(version, {}))


class _Lines:
    """The lengths and lines in a compressed registration, inflated as they are asked for."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._inflate = zlib.decompressobj()
        self._left: bytes | memoryview = data
        self._raw = b""
        self._at = 0
        self._size = 0

    def next_number(self) -> int:
        """Four bytes, signed. Raises BodyError."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def next_line(self, longest: int) -> bytes:
        """A length, and so many bytes. Raises BodyError."""
        length = self.next_number()
        if not 0 <= length <= longest:
            raise BodyError(f"a compressed registration has a piece of {length} bytes; 0 to {longest} are taken")
        return self._take(length)

    def _take(self, count: int) -> bytes:
        while (end := self._at + count) > len(self._raw):
            if self._size >= MAX_INFLATED:
                raise BodyError(f"a compressed registration inflates to more than {MAX_INFLATED >> 20} MiB")
            more = _inflate_some(self._inflate, self._left, _WHOLE) if self._left else b""
            if not more:
                raise BodyError(f"a compressed registration ends inside a piece, at byte {self._size}")
            self._left = self._inflate.unconsumed_tail
            self._size += len(more)
            self._raw, self._at = self._raw[self._at :] + more, 0
        taken = self._raw[self._at : end]
        self._at = end
        return taken


class TableBesidesTopics(Body):
    dataVersion: DataVersion = field(default_factory=DataVersion)
    topicConfigTable: bool = False  # whether there was one


class RegistrationBesidesTopics(Body):
    filterServerList: list[str] = field(default_factory=list)
    topicConfigSerializeWrapper: TableBesidesTopics = field(default_factory=TableBesidesTopics)


_find_topics = re.compile(rb'"topicConfigTable"\s*+:\s*+\{').search
_decode_topics = msgspec.json.Decoder(dict[str, TopicConfig], strict=False).decode


def _read_without_topics(data: bytes, bare: bool) -> RegisterBrokerBody:
    if bare:
        servers, table = [], TableBesidesTopics.from_json(data)
    else:
        body = RegistrationBesidesTopics.from_json(data)
        servers, table = body.filterServerList, body.topicConfigSerializeWrapper
    if not table.topicConfigTable:
        raise BodyError("the topics of a registration are not where they belong")
    return RegisterBrokerBody(servers, TopicConfigTable(table.dataVersion))


def _check_count(count: int) -> None:
    if not 0 <= count <= MAX_TOPICS:
        raise BodyError(f"a registration of {count} topics; at most {MAX_TOPICS} are taken")


def body_crc32(body: bytes | memoryview) -> int:
    """The header field: CRC-32 of the body as sent, without the top bit."""
    return crc32(body) & 0x7FFFFFFF


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _filter_servers(text: bytes | memoryview) -> list[str]:
    if len(text) > _LONGEST_SERVERS:
        raise BodyError(f"the filter servers of a registration have {len(text)} bytes; {_LONGEST_SERVERS} are taken")
    try:
        return msgspec.json.decode(text or b"[]", type=list[str] | None) or []
    except UNDECODABLE as error:
        raise BodyError(f"the list of filter servers in a registration cannot be read: {error}") from None


def _inflate_some(inflate: zlib._Decompress, data: bytes | memoryview, limit: int) -> bytes:
    try:
        return inflate.decompress(data, limit)
    except zlib.error as error:
        raise BodyError(f"a compressed registration is no zlib stream: {error}") from None


def _line_of(topic: TopicConfig) -> bytes:
    numbers = f"{topic.readQueueNums} {topic.writeQueueNums} {topic.perm}"
    return _sized(f"{topic.topicName} {numbers} {topic.topicFilterType}".encode())


def _topic_of(line: bytes) -> TopicConfig:
    columns = line.decode("utf-8", "replace").split(" ")
    if len(columns) not in (5, 6) or columns[4] not in FILTER_TYPES:
        raise BodyError(f"a topic of a compressed registration is {line[:200]!r}")
    try:
        read, write, perm = (msgspec.convert(column, Int, strict=False) for column in columns[1:4])
    except msgspec.ValidationError:
        raise BodyError(f"a topic of a compressed registration is {line[:200]!r}") from None
    return TopicConfig(
        perm=perm, readQueueNums=read, topicFilterType=columns[4], topicName=columns[0], writeQueueNums=write
    )
