"""The compressed form of a registration: RocketMQ's own example, the form of 5.x, and refusals."""

from __future__ import annotations

import json
import zlib
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import fastjson
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol import registration
from rocketlet.remoting.protocol.configuration import DataVersion, TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, body_crc32

BY_JAVA = bytes.fromhex(
    "78DA63606050AF564ACE2FCD2B492D52B232D6512AC9CC4D2D2E49CC2D50B232343740805A0606064620160E3154B000423385604F3F771FD7F8"
    "104777A03053742C00D4BD113D"
)
BODY = RegisterBrokerBody([], TopicConfigTable(DataVersion(3, 1700000000000), {"T1": TopicConfig(topicName="T1")}))


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def pieces(*topics: bytes, servers: bytes = b"[]", count: int | None = None) -> bytes:
    number = len(topics) if count is None else count
    head = sized(b'{"counter":1,"timestamp":2}') + (number & 0xFFFFFFFF).to_bytes(4, "big")
    return zlib.compress(head + b"".join(map(sized, topics)) + sized(servers))


def test_javas_registration() -> None:
    assert RegisterBrokerBody.from_compressed(BY_JAVA) == BODY
    assert RegisterBrokerBody.from_compressed(memoryview(BY_JAVA)) == BODY
    assert RegisterBrokerBody.from_compressed(BODY.to_compressed()) == BODY
    assert body_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def test_a_sixth_column_and_trailing_data_come_from_5_x() -> None:
    raw = zlib.decompress(pieces(b"T1 8 4 6 MULTI_TAG {}")) + bytes(4)
    (topic,) = RegisterBrokerBody.from_compressed(
        zlib.compress(raw)
    ).topicConfigSerializeWrapper.topicConfigTable.values()
    assert (topic.readQueueNums, topic.writeQueueNums, topic.perm, topic.topicFilterType) == (8, 4, 6, "MULTI_TAG")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(sized(b"{}") + b"\0\0\0\1"),
        zlib.compress(sized(b"x") + bytes(4) + sized(b"[]")),
        pieces(b"T1 8 8"),
        pieces(b"T1 8 8 6 SOME_TAG"),
        pieces(b"T1 a b c SINGLE_TAG"),
        pieces(b"T1 8 8 6 SINGLE_TAG a b"),
        pieces(b"T1 8 8 6 SINGLE_TAG", count=2),
        pieces(b"T1 8 8 6 SINGLE_TAG", servers=b"{"),
    ],
)
def test_invalid_registrations(data: bytes) -> None:
    with pytest.raises(BodyError):
        RegisterBrokerBody.from_compressed(data)


def test_a_compression_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_INFLATED", 1 << 16)
    topics = b"".join(sized(b"T%d 8 8 6 SINGLE_TAG" % number) for number in range(4_000))
    with pytest.raises(BodyError, match="inflates to more"):
        RegisterBrokerBody.from_compressed(zlib.compress(sized(b"{}") + (4_000).to_bytes(4, "big") + topics))


def test_what_follows_a_compressed_registration_is_not_inflated() -> None:
    inflated = registration._Lines(zlib.compress(sized(b"{}") + bytes(8) + bytes(32 << 20)))
    inflated.next_line(100)
    assert (inflated.next_number(), inflated.next_line(100), inflated._size) == (0, b"", 64 << 10)


@pytest.mark.parametrize("piece", ["version", "topic", "servers"])
def test_a_piece_of_megabytes_is_refused_before_inflation(piece: str) -> None:
    long = b" " * (8 << 20)
    version = sized(long if piece == "version" else b"{}")
    topic = sized(long if piece == "topic" else b"T 8 8 6 SINGLE_TAG")
    servers = sized(b"[" + b'"",' * (4 << 20) + b'""]' if piece == "servers" else b"[]")
    body = zlib.compress(version + (1).to_bytes(4, "big") + topic + servers)
    with pytest.raises(BodyError, match="a compressed registration has a piece of"):
        list(registration.in_pieces(body, compressed=True))


BEFORE_TOPICS = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},'


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[" + b"{}," * 100_000 + b"1]", "300003 bytes besides its topics"),
        (b'{"topicConfigSerializeWrapper":[' + b"1," * 200_000 + b"1]}", "bytes besides its topics"),
        (BEFORE_TOPICS + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}}}", "expected an object"),
        (BEFORE_TOPICS + b",".join(b'"%d":{}' % n for n in range(201_000)) + b"}}}", "at most 200000"),
        (BEFORE_TOPICS + b",".join(b'"%d":{},"attributes":{}' % n for n in range(201_000)) + b"}}}", "at most 200000"),
        (BEFORE_TOPICS + b'"U":{"attributes":{"a":"' + b"x" * 300_000 + b'"}}}}}', "at most 65536"),
        (b'{"filterServerList":[' + b'"",' * 200_000 + b'""]}', "bytes besides its topics"),
        (BEFORE_TOPICS + b" " * 100_000 + b"}}}", "at most 65536"),
        (BEFORE_TOPICS[:-1] + b"}}" + b" " * 100_000 + b"}", "bytes besides its topics"),
    ],
    ids=[
        *("list", "wrapper", "numbers", "topics", "topics-and-attributes", "attributes", "servers", "blanks"),
        "blanks-behind",
    ],
)
def test_millions_of_values_are_refused_before_they_are_kept(
    body: bytes, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Mock(side_effect=fastjson._decode)
    monkeypatch.setattr(fastjson, "_decode", kept)
    assert registration.is_large(body, compressed=False)
    with pytest.raises(BodyError, match=problem):
        list(registration.in_pieces(body, compressed=False))
    kept.assert_not_called()


def test_long_compressed_topics_are_read_few_at_a_time() -> None:
    topics = [b"T%d%b 8 8 6 SINGLE_TAG" % (n, b"x" * 10_000) for n in range(100)]
    found = list(registration.in_pieces(pieces(*topics), compressed=True))
    sizes = [len(piece.topicConfigSerializeWrapper.topicConfigTable) for piece in found]
    assert sum(sizes) == 100
    assert max(sizes) < 30


def test_topics_with_many_attributes_are_read_few_at_a_time() -> None:
    attributes = {f"a{number}": "x" * 100 for number in range(100)}
    topics = {f"T{n}": TopicConfig(topicName=f"T{n}", attributes=attributes) for n in range(100)}
    table = RegisterBrokerBody([], TopicConfigTable(DataVersion(3, 4), topics))
    found = list(registration.in_pieces(table.to_json(), compressed=False))
    sizes = [len(piece.topicConfigSerializeWrapper.topicConfigTable) for piece in found]
    assert sum(sizes) == 100
    assert max(sizes) < 30


def test_a_large_bare_table_is_read_in_pieces() -> None:
    """Of a broker before 3.0.11."""
    topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(4_321)}
    found = list(
        registration.in_pieces(TopicConfigTable(DataVersion(3, 4), topics).to_json(), compressed=True, bare=True)
    )
    tables = [piece.topicConfigSerializeWrapper.topicConfigTable for piece in found]
    assert max(map(len, tables)) <= 1000
    assert {name: topic for table in tables for name, topic in table.items()} == topics


def test_null_filter_servers_are_none() -> None:
    body = BEFORE_TOPICS + b",".join(b'"%d":{"topicName":"%d"}' % (n, n) for n in range(20_000))
    (*_, last) = registration.in_pieces(body + b'}},"filterServerList":null}', compressed=False)
    assert last.filterServerList == []


def test_a_count_of_millions_is_refused_before_inflation() -> None:
    topics = b"".join(sized(b"T%d 8 8 6 SINGLE_TAG" % number) for number in range(10_000))
    body = zlib.compress(sized(b"{}") + (4_000_000).to_bytes(4, "big") + topics)
    with pytest.raises(BodyError, match="4000000 topics; at most 200000"):
        next(registration.in_pieces(body, compressed=True))


@pytest.mark.parametrize("compressed", [True, False])
def test_a_large_registration_in_pieces_equals_the_whole(compressed: bool) -> None:
    topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(4_321)}
    whole = RegisterBrokerBody(["f:1"], TopicConfigTable(DataVersion(3, 4), topics))
    data = whole.to_compressed() if compressed else whole.to_json()
    assert registration.is_large(data, compressed=compressed)
    found = list(registration.in_pieces(data, compressed=compressed))
    joined: dict[str, TopicConfig] = {}
    for piece in found:
        assert len(piece.topicConfigSerializeWrapper.topicConfigTable) <= 1000
        joined |= piece.topicConfigSerializeWrapper.topicConfigTable
    assert joined == topics
    assert found[-1].filterServerList == ["f:1"]
    assert found[-1].topicConfigSerializeWrapper.dataVersion == DataVersion(3, 4)


@pytest.mark.parametrize("topic", [b'"%d":{}', b'"%d":{"attributes":{}}', b'"%d":{"topicName":"T","perm":6}'])
def test_topics_are_read_without_a_look_at_all_that_follows(topic: bytes) -> None:
    """199,000 times `{}` held the loop for 60 ms, until it was known where each of them begins."""
    topics = [topic % number for number in range(199_000)]
    found = registration.in_pieces(BEFORE_TOPICS + b",".join(topics) + b"and nonsense", compressed=False)
    piece = next(found).topicConfigSerializeWrapper.topicConfigTable
    assert 100 < len(piece) <= 1000
    with pytest.raises(BodyError, match="expected an object"):
        list(found)


def test_topics_anywhere_else_are_not_taken() -> None:
    topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(4_321)}
    body = RegisterBrokerBody([], TopicConfigTable(DataVersion(3, 4), topics)).to_json()
    with pytest.raises(BodyError, match="not where they belong"):
        list(registration.in_pieces(b'{"x":%b}' % body, compressed=False))
    with pytest.raises(BodyError, match="not where they belong"):
        list(registration.in_pieces(body, compressed=False, bare=True))


def test_a_large_registration_may_be_spaced_and_in_any_order() -> None:
    topics = {f"T{number}": {"topicName": f"T{number}", "perm": "4"} for number in range(4_321)}
    table = {"topicConfigTable": topics, "dataVersion": {"counter": 3, "timestamp": 4}, "mappings": {"a": {}}}
    whole = {"topicConfigSerializeWrapper": table, "filterServerList": ["f:1"]}
    *found, last = registration.in_pieces(json.dumps(whole, indent=1).encode(), compressed=False)
    names = [name for piece in found for name in piece.topicConfigSerializeWrapper.topicConfigTable]
    assert names == list(topics)
    assert last == RegisterBrokerBody(["f:1"], TopicConfigTable(DataVersion(3, 4)))


def test_one_odd_topic_keeps_no_large_registration_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [b'"T%d":{"topicName":"T%d","perm":6,"writeQueueNums":8}' % (number, number) for number in range(4_321)]
    data = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}' % b",".join(
        [*plain, b'"x\\ud800":{"topicName":"x\\ud800"}', b'"U":{topicName:"U",}']
    )
    found = list(registration.in_pieces(data, compressed=False))
    names = [name for piece in found for name in piece.topicConfigSerializeWrapper.topicConfigTable]
    assert (len(names), names[-1]) == (4_323, "U")
    monkeypatch.setattr(registration, "_MOST_ODD", 10)
    with pytest.raises(BodyError, match="cannot be read"):
        list(registration.in_pieces(data, compressed=False))


def test_a_small_registration_is_not_large() -> None:
    body = RegisterBrokerBody([], TopicConfigTable(DataVersion(), {"T": TopicConfig(topicName="T")}))
    assert not registration.is_large(body.to_compressed(), compressed=True)
    assert not registration.is_large(body.to_json(), compressed=False)


@given(st.binary(max_size=60))
def test_any_pieces_are_a_registration_or_a_body_error(raw: bytes) -> None:
    try:
        RegisterBrokerBody.from_compressed(zlib.compress(raw))
    except BodyError:
        pass  # the only error allowed
