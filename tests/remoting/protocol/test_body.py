"""Bodies: the form in which they are written, the leniency with which they are read, and that invalid bytes raise only
BodyError."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.configuration import DataVersion
from rocketlet.remoting.protocol.inspection import (
    BrokerStatsData,
    ConsumeMessageDirectlyBody,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    ProcessQueueInfo,
    QueueEntry,
    TopicOffset,
    TopicStatsTable,
)
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.membership import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    ProducerData,
    SubscriptionData,
)
from rocketlet.remoting.protocol.offsets import ConsumerOffsetTable, ConsumerStatusBody, ResetOffsetBody, offset_rows
from rocketlet.remoting.protocol.popping import BatchAckBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.protocol.routing import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from tests.support.frames import ANSWER_BODIES, REQUEST_BODIES, recorded

QUEUE = MessageQueue("T1", "broker-a", 0)
KEY = b'{"brokerName":"broker-a","queueId":0,"topic":"T1"}'
ALL_BODIES = sorted({*ANSWER_BODIES.values(), *REQUEST_BODIES.values()}, key=lambda cls: cls.__name__)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def test_a_route_is_written_as_the_go_client_needs_it() -> None:
    """No blanks, quoted ids, both spellings of the flag, no orderTopicConf unless there is one."""
    route = TopicRouteData(
        [BrokerData({0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, "broker-a", "DefaultCluster")],
        queueDatas=[QueueData("broker-a", 6, 4, writeQueueNums=4)],
    )
    assert route.to_json() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":4,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    route.orderTopicConf = "broker-a:4"
    assert b'"orderTopicConf":"broker-a:4"' in route.to_json()


def test_a_route_is_read_in_every_dialect() -> None:
    java = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b","cluster":"c"}],"queueDatas":[]}'
    assert TopicRouteData.from_json(java).brokerDatas[0].brokerAddrs == {0: "10.0.0.1:10911"}
    assert TopicRouteData.from_json(java.replace(b"0:", b'"0":')) == TopicRouteData.from_json(java)
    old = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":1,"writeQueueNums":4}]}'
    assert TopicRouteData.from_json(old).queueDatas[0].topicSysFlag == 1


def test_lists_and_tables() -> None:
    assert TopicList(["T1"]).to_json() == b'{"topicList":["T1"]}'
    assert TopicList(["T1"], "1.1.1.1:1").to_json() == b'{"topicList":["T1"],"brokerAddr":"1.1.1.1:1"}'
    assert json.loads(ClusterInfo().to_json()) == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert KVTable.from_json(b'{"table":{"a":1,"b":true,"c":"x","d":null}}').table == {"a": "1", "b": "true", "c": "x"}
    offsets = ConsumerOffsetTable.from_json(b'{"offsetTable":{"T@G":{0:5,1:7}}}')
    assert offsets.offsetTable == {"T@G": {0: 5, 1: 7}}
    assert offsets.to_json() == b'{"offsetTable":{"T@G":{"0":5,"1":7}}}'


@given(
    st.dictionaries(
        st.text(max_size=5) | st.just("T@G"),
        st.dictionaries(st.integers(0, 70_000), st.integers(-1, (1 << 63) - 1), max_size=4),
        max_size=4,
    ),
    st.sampled_from([b"", b',"dataVersion":{"counter":1}']),
)
def test_rows_of_offsets_are_those_of_the_table(table: dict[str, dict[int, int]], more: bytes) -> None:
    quoted = ConsumerOffsetTable(table).to_json()[:-1] + more + b"}"
    javas = re.sub(rb'"(\d+)":(-?\d)', rb"\1:\2", quoted)
    assert dict(offset_rows(quoted)) == table
    assert dict(offset_rows(javas)) == dict(ConsumerOffsetTable.from_json(javas).offsetTable)


@pytest.mark.parametrize("text", [b"", b'{"offsetTable":{"T@G":{0:5}', b'{"offsetTable":{"T@G":{0:x}}}', b"[]"])
def test_a_table_of_offsets_that_cannot_be_read(text: bytes) -> None:
    with pytest.raises(BodyError):
        list(offset_rows(text))


def test_a_cpp_heartbeat() -> None:
    """Ordinals, numbers as text, missing sets, a trailing line end."""
    body = HeartbeatData.from_json(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"CG","messageModel":1,'
        b'"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"","subVersion":"17","tagsSet":null,"topic":"T"}]}]}\n'
    )
    (consumer,) = body.consumerDataSet
    assert (consumer.consumeFromWhere, consumer.consumeType, consumer.messageModel) == (
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_PASSIVELY",
        "CLUSTERING",
    )
    assert consumer.subscriptionDataSet == [SubscriptionData("T", "*", [], [2598919], 17, "TAG", False)]
    assert body.producerDataSet == []


def test_a_heartbeat_is_written_with_names() -> None:
    body = HeartbeatData("c", [ProducerData("PG")], [ConsumerData("CG", subscriptionDataSet=[SubscriptionData("T")])])
    written = json.loads(body.to_json())
    assert written["consumerDataSet"][0]["messageModel"] == "CLUSTERING"
    assert written["consumerDataSet"][0]["unitMode"] is False
    assert written["consumerDataSet"][0]["subscriptionDataSet"][0] == {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 0,
        "tagsSet": [],
        "topic": "T",
    }
    assert HeartbeatData.from_json(body.to_json()) == body


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (HeartbeatData, b'{"producerDataSet":[%b]}'),
        (HeartbeatData, b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%b]}]}'),
        (BatchAckBody, b'{"brokerName":"b","acks":[%b]}'),
    ],
)
def test_bodies_of_many_objects_have_a_limit(cls: type[Body], text: bytes) -> None:
    count = 10_000 - text.count(b"{") + 1
    cls.from_json(text % b",".join([b"{}"] * count))
    with pytest.raises(BodyError, match="more than 10000 objects"):
        cls.from_json(text % b",".join([b"{}"] * (count + 1)))


def test_references_are_resolved() -> None:
    stats = BrokerStatsData.from_json(
        b'{"statsDay":{"avgpt":3.0,"sum":1,"tps":2.0},"statsHour":{"$ref":"$.statsDay"},"statsMinute":{"$ref":"$.statsDay"}}'
    )
    assert stats.statsHour == stats.statsDay
    assert stats.statsMinute.sum == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            TopicStatsTable({QUEUE: TopicOffset(88, 10, 0)}),
            b'{"offsetTable":{%b:{"lastUpdateTimestamp":88,"maxOffset":10,"minOffset":0}}}',
        ),
        (
            ConsumeStats({QUEUE: OffsetWrapper(10, 5, 99)}, 1.5),
            b'{"consumeTps":1.5,"offsetTable":{%b:{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":99}}}',
        ),
        (ResetOffsetBody({QUEUE: 100}), b'{"offsetTable":{%b:100}}'),
        (
            ConsumerStatusBody({QUEUE: 100}, {"cid": {QUEUE: 100}}),
            b'{"consumerTable":{"cid":{%b:100}},"messageQueueTable":{%b:100}}',
        ),
    ],
)
def test_raw_object_keys(body: Body, text: bytes) -> None:
    expected = text % ((KEY,) * text.count(b"%b"))
    assert body.to_json() == expected
    assert type(body).from_json(expected) == body


def test_consume_stats_and_running_info_round_trip() -> None:
    stats = ConsumeStatsList([{"CG": [ConsumeStats({QUEUE: OffsetWrapper(10, 5, 99)}, 1.5)]}], "1.1.1.1:1", 5)
    assert ConsumeStatsList.from_json(stats.to_json()) == stats
    info = ConsumerRunningInfo(
        {"PROP_CONSUME_TYPE": "x"}, [SubscriptionData("T")], {QUEUE: ProcessQueueInfo(droped=True)}
    )
    assert ConsumerRunningInfo.from_json(info.to_json()) == info
    assert b"jstack" not in info.to_json()


def test_queues_in_lists() -> None:
    body = LockBatchBody("c", "CG", [WireQueue.of(QUEUE)])
    assert body.to_json() == b'{"clientId":"c","consumerGroup":"CG","mqSet":[%b]}' % KEY
    assert [one.queue for one in LockBatchBody.from_json(body.to_json()).mqSet] == [QUEUE]
    assert WireQueue("a", 1, "t") < WireQueue("a", 2, "t")


def test_absent_parts_of_an_entry_are_left_out() -> None:
    assert QueueEntry(1, 2, 3, False).to_json() == b'{"physicOffset":1,"physicSize":2,"tagsCode":3,"eval":false}'
    assert ConsumeMessageDirectlyBody.from_json(b'{"consumeResult":4}').consumeResult == "CR_THROW_EXCEPTION"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"5", b"null", b'{"counter":"x"}', b'{"a":' * 3000, b"\xff\xfe"])
def test_an_invalid_body_is_a_body_error(text: bytes) -> None:
    with pytest.raises(BodyError, match="DataVersion"):
        DataVersion.from_json(text)


@given(value=json_values)
@pytest.mark.parametrize("cls", ALL_BODIES)
def test_any_json_is_a_body_or_a_body_error(cls: type[Body], value: Any) -> None:
    try:
        assert isinstance(cls.from_json(json.dumps(value).encode()), cls)
    except BodyError:
        pass  # the only error allowed


@given(st.data())
def test_a_recorded_body_with_one_part_replaced_is_a_body_or_a_body_error(data: st.DataObject) -> None:
    frames = [frame for frame in recorded() if frame.asked in ANSWER_BODIES and frame.code == 0 and frame.is_response]
    frame = data.draw(st.sampled_from([frame for frame in frames if 0 < len(frame.body) < 4000]))
    assert frame.asked is not None
    text = bytearray(frame.body)
    at = data.draw(st.integers(0, len(text)))
    text[at : at + data.draw(st.integers(0, 8))] = data.draw(
        st.sampled_from([b"", b"null", b"{}", b"[]", b'"', b"5", b":"])
    )
    cls = ANSWER_BODIES[frame.asked]
    try:
        assert isinstance(cls.from_json(bytes(text)), cls)
    except BodyError:
        pass  # the only error allowed
