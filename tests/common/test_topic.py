from __future__ import annotations

import pytest

from rocketlet.common.topic import (
    InvalidName,
    check_group_name,
    check_topic_name,
    dlq_topic,
    is_system_group,
    is_system_topic,
    refusal_of,
    reply_topic,
    retry_topic,
)


@pytest.mark.parametrize("name", ["TopicTest", "a", "ns%topic", "x|y_z-9", "t" * 127, "%RETRY%" + "g" * 240])
def test_good_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "part"),
    [("", "blank"), ("  ", "blank"), ("../x", "characters"), ("Töpic", "characters"), ("a\n", "characters"),
     ("t" * 128, "128 characters; at most 127"), ("%DLQ%" + "g" * 251, "at most 255")],
)  # fmt: skip
def test_bad_names_say_why(name: str, part: str) -> None:
    with pytest.raises(InvalidName, match=part):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        (" ", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("t" * 128, "The specified topic is longer than topic max length."),
        ("t" * 127, ""),
    ],
)
def test_brokers_refuse_names_in_rocketmqs_words(name: str, remark: str) -> None:
    assert refusal_of(name) == remark


def test_groups() -> None:
    check_group_name("g" * 255)
    with pytest.raises(InvalidName, match="group"):
        check_group_name("g" * 256)
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("orders")


def test_derived_names() -> None:
    assert (retry_topic("g"), dlq_topic("g"), reply_topic("c")) == ("%RETRY%g", "%DLQ%g", "c_REPLY_TOPIC")


def test_system_topics() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_REVIVE_LOG_c")
    assert is_system_topic("c", cluster="c", broker="b")
    assert is_system_topic("c_REPLY_TOPIC", cluster="c", broker="b")
    assert is_system_topic("b", cluster="c", broker="b")
    assert not is_system_topic("%RETRY%g", cluster="c", broker="b")
    assert not is_system_topic("")
