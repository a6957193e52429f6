"""Messages whose bodies are values: as JSON, or written by a user's serialiser."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec
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


def test_invalid_json_is_refused() -> None:
    with pytest.raises(TypeError):
        Message.json("T", {1, 2})
    with pytest.raises(json.JSONDecodeError):
        received(b"text").json()


@dataclass(frozen=True)
class Order:
    number: int
    what: str


class Orders:
    """A user's serialiser."""

    def dumps(self, value: Order, /) -> bytes:
        return msgspec.msgpack.encode(value)

    def loads(self, body: bytes, /) -> Order:
        return msgspec.msgpack.decode(body, type=Order)


def test_a_serialiser_writes_and_reads_its_own_types() -> None:
    message = Message.of("T", Order(7, "tea"), Orders(), tags="new")
    assert (message.topic, message.tags) == ("T", "new")
    read: Order = received(message.body).value(Orders())
    assert read == Order(7, "tea")
    with pytest.raises(msgspec.DecodeError):
        received(b"\xc1").value(Orders())
