"""Attributes of topics: what changes them, and what is refused."""

from __future__ import annotations

import pytest

from rocketlet.common.topic_attributes import InvalidAttributes, changed_attributes, message_type


def test_a_type_is_set_replaced_and_removed() -> None:
    fifo = changed_attributes({}, "+message.type=FIFO")
    assert message_type(fifo) == "FIFO"
    assert message_type(changed_attributes(fifo, "+message.type=MIXED")) == "MIXED"
    assert changed_attributes(fifo, "-message.type") == {}
    assert changed_attributes(fifo, "") == fifo


def test_a_topic_without_a_type_takes_normal_messages() -> None:
    assert message_type({}) == "NORMAL"


@pytest.mark.parametrize(
    "change",
    ["message.type=FIFO", "+message.type", "+message.type=fifo", "-message.type=FIFO", "+queue.type=BatchCQ",
     "+message.type=FIFO,-message.type", "+", "+=FIFO", "+message.type=" + "F" * 2000],
)  # fmt: skip
def test_invalid_attribute_changes(change: str) -> None:
    with pytest.raises(InvalidAttributes):
        changed_attributes({}, change)
