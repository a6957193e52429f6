"""Messages whose bodies are values as JSON."""

from __future__ import annotations

import json

import pytest

from rocketlet import Message
from rocketlet.common.message import MessageQueue, ReceivedMessage


def received(body: bytes) -> ReceivedMessage:
    queue = MessageQueue("T", "b", 0)
    return ReceivedMessage("T", body, queue, 0, 0, "", "", 0, "", 0, "", 0, None, (), 0, 0, {}, 0)


def test_a_value_is_sent_and_read_back() -> None:
    value = {"order": 7, "name": "Zoë", "lines": [1.5, None, True]}
    message = Message.json("T", value, keys=["7"], tags="new")
    assert (message.topic, message.keys, message.tags) == ("T", ["7"], "new")
    assert message.body == '{"order":7,"name":"Zoë","lines":[1.5,null,true]}'.encode()
    assert received(message.body).json() == value


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        Message.json("T", {1, 2})
    with pytest.raises(json.JSONDecodeError):
        received(b"text").json()
