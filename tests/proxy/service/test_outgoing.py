"""What a gRPC client may send, and the resulting message for a broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import message_flags as flags
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_properties import decode
from rocketlet.proxy.call import Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service.outgoing import (
    MAX_HEAD_BYTES,
    MAX_MESSAGES,
    check_bytes,
    check_group,
    check_topic,
    check_type,
    choose_queue,
    consistent_hash,
    outgoing,
)
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code

CONFIG = ProxyConfig()
NOW = 1_700_000_000_000


def message(body: bytes = b"body", user: dict[str, str] | None = None, **system: Any) -> m.Message:
    properties = m.SystemProperties(**{"message_id": "0102", **system})
    return m.Message(topic=m.Resource(name="T"), user_properties=user or {}, system_properties=properties, body=body)


def at(ms: int) -> m.Timestamp:
    return m.Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def test_system_properties_become_properties() -> None:
    sent = message(
        user={"colour": "blue"}, tag="red", keys=["a", "b"], born_timestamp=at(NOW - 5), trace_context="00-1-2-01"
    )
    found = outgoing(sent, CONFIG, "10.0.0.9:1", NOW)
    assert decode(found.properties) == {
        "colour": "blue",
        "TAGS": "red",
        "KEYS": "a b",
        "UNIQ_KEY": "0102",
        "__BORNHOST": "10.0.0.9:1",
        "TRACE_CONTEXT": "00-1-2-01",
    }
    assert (found.type, found.sys_flag, found.born_timestamp) == ("NORMAL", 0, NOW - 5)


def test_a_messages_type_follows_from_its_properties() -> None:
    fifo = outgoing(message(message_group="g"), CONFIG, "", NOW)
    assert (fifo.type, fifo.message_group, decode(fifo.properties)["__SHARDINGKEY"]) == ("FIFO", "g", "g")
    later = outgoing(message(delivery_timestamp=at(NOW + 1500)), CONFIG, "", NOW)
    assert (later.type, decode(later.properties)["TIMER_DELIVER_MS"]) == ("DELAY", str(NOW + 1500))
    over = outgoing(message(delivery_timestamp=at(NOW - 1500)), CONFIG, "", NOW)
    assert (over.type, over.deliver_ms) == ("DELAY", NOW - 1500)
    half = outgoing(
        message(message_type=m.TRANSACTION, orphaned_transaction_recovery_duration=m.Duration(seconds=30)),
        CONFIG,
        "",
        NOW,
    )
    properties = decode(half.properties)
    assert (half.type, half.sys_flag) == ("TRANSACTION", flags.PREPARED)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "T")
    assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "30"
    assert outgoing(message(body_encoding=m.GZIP), CONFIG, "", NOW).sys_flag == flags.COMPRESSED


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(b""), Code.MESSAGE_BODY_EMPTY),
        (message(bytes((4 << 20) + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (message(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (message(message_id="a\x01b"), Code.ILLEGAL_MESSAGE_ID),
        (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x02b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a", " "]), Code.ILLEGAL_MESSAGE_KEY),
        (message(keys=["a\x01"]), Code.ILLEGAL_MESSAGE_KEY),
        (message(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (message(message_group=" "), Code.ILLEGAL_MESSAGE_GROUP),
        (message(user={"KEYS": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"TIMER_DELIVER_MS": "1"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"x": "a\x02WAIT\x01false"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"x": "y" * 16384}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(user={str(n): "y" for n in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(delivery_timestamp=at(NOW + 86_400_001)), Code.ILLEGAL_DELIVERY_TIME),
        (
            message(message_type=m.TRANSACTION, orphaned_transaction_recovery_duration=m.Duration(seconds=3601)),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_each_broken_rule_is_refused_with_its_code(sent: m.Message, code: Code) -> None:
    with pytest.raises(Refusal) as refusal:
        outgoing(sent, CONFIG, "", NOW)
    assert refusal.value.code is code


def test_a_topic_takes_its_type_or_any() -> None:
    check_type("NORMAL", "NORMAL")
    check_type("MIXED", "FIFO")
    with pytest.raises(Refusal):
        check_type("FIFO", "NORMAL")


@pytest.mark.parametrize("name", ["", "a b", "../x", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "x" * 128])
def test_forbidden_topics(name: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_topic(name)
    assert refusal.value.code is Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", "a b", "no/group", "CID_RMQ_SYS_TRANS", "x" * 256])
def test_forbidden_groups(name: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_group(name)
    assert refusal.value.code is Code.ILLEGAL_CONSUMER_GROUP


def test_messages_of_a_group_go_to_one_queue_and_others_in_turn() -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(8)]
    assert len({choose_queue(queues, "group", turn) for turn in range(20)}) == 1
    assert [choose_queue(queues, "", turn).queue_id for turn in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert len({choose_queue(queues, f"group{n}", 0) for n in range(200)}) == 8


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 100))
def test_adding_a_queue_moves_a_group_only_to_it(key: int, queues: int) -> None:
    before, after = consistent_hash(key, queues), consistent_hash(key, queues + 1)
    assert 0 <= before < queues
    assert after in (before, queues)


def test_a_large_send_must_be_large_by_its_bodies() -> None:
    check_bytes(m.SendMessageRequest(messages=[message(bytes(4 << 20))]).SerializeToString())
    check_bytes(m.SendMessageRequest(messages=[message(bytes(1 << 20)) for _ in range(4)]).SerializeToString())
    many = m.SendMessageRequest(messages=[message()] * (MAX_MESSAGES + 1)).SerializeToString()
    with pytest.raises(Refusal):
        check_bytes(many)
    for hollow in (
        b"\x0a\x00" * 1_000_000,
        b"\x0a\x80\x89\x7a" + b"\x12\x00" * 1_000_000,
        m.SendMessageRequest(messages=[message(user={"x" * MAX_HEAD_BYTES: "y"})]).SerializeToString(),
        m.SendMessageRequest(messages=[message(keys=["k"] * 100_000)]).SerializeToString(),
    ):
        with pytest.raises(Refusal):
            check_bytes(hollow)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    try:
        check_bytes(data)
    except Refusal:
        pass
