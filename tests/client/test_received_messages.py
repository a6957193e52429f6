"""A batch in columns equals the messages one by one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.compression import CannotInflate, compress
from rocketlet.client.consuming.received_messages import MessageReader, UndecodedMessage
from rocketlet.common import message_flags as flags
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_record import Record, RecordError, encode
from rocketlet.common.subscription import parse_tags

QUEUE = MessageQueue("T", "broker-a", 3)
READER = MessageReader("", 1 << 20)

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
hosts = st.sampled_from([b"\x0a\x00\x00\x05\x00\x00\x2a\x9f", bytes(range(16)) + b"\x00\x00\x2a\x9f"])


@st.composite
def records(draw: st.DrawFn) -> Record:
    properties = {"UNIQ_KEY": draw(texts), "TAGS": draw(texts), "KEYS": " ".join(draw(st.lists(texts, max_size=3)))}
    properties["a"] = draw(texts)
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items() if value)
    body, sys_flag = draw(st.binary(max_size=200)), 0
    if draw(st.booleans()):
        body, sys_flag = compress(body, 5), flags.COMPRESSED
    return Record(
        draw(st.sampled_from(["T", "t" * 127, "t" * 200, "%RETRY%g"])), 3, draw(st.integers(0, 1 << 40)), 7, body,
        text.encode(),
        sys_flag=sys_flag, born_timestamp=draw(st.integers(0, 1 << 40)), born_host=draw(hosts),
        store_timestamp=draw(st.integers(0, 1 << 40)), store_host=draw(hosts),
    )  # fmt: skip


@given(st.lists(records(), max_size=5))
def test_the_columns_equal_the_messages(some: list[Record]) -> None:
    raw = b"".join(map(encode, some))
    messages = READER.pulled(raw, QUEUE)
    batch = READER.batch(memoryview(raw), QUEUE)
    assert list(batch) == messages
    assert len(batch) == len(messages)
    assert batch.bodies == [message.body for message in messages]
    assert batch.offsets == [message.queue_offset for message in messages]
    assert batch.store_times == [message.store_timestamp for message in messages]
    assert batch.born_times == [message.born_timestamp for message in messages]
    assert batch.tags == [message.tags for message in messages]
    assert batch.keys == [message.keys for message in messages]
    assert batch.properties == [message.properties for message in messages]
    assert batch.message_ids == [message.message_id for message in messages]
    assert (batch.topic, batch.queue) == ("T", QUEUE)
    part = batch[1:3]
    assert (list(part), part.bodies) == (messages[1:3], batch.bodies[1:3])


@given(records())
def test_a_message_is_decoded_field_by_field_as_it_would_be_whole(record: Record) -> None:
    raw = encode(record)
    (whole,) = READER.several(raw, QUEUE.broker_name)
    whole.queue = QUEUE
    for field in fields(ReceivedMessage):
        (pulled,) = MessageReader("", 1 << 20).pulled(raw, QUEUE)
        assert getattr(pulled, field.name) == getattr(whole, field.name)
        assert pulled == whole
        assert whole == pulled


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_pulled_message_is_copied_and_changed_like_any_other(copied: Callable[[Any], Any]) -> None:
    raw = encode(Record("T", 3, 5, 7, b"x", b"TAGS\x01a\x02KEYS\x01b c"))
    reader = MessageReader("", 1 << 20)
    first, second, third = reader.pulled(raw * 3, QUEUE)
    (whole,) = reader.several(raw, QUEUE.broker_name)
    whole.queue = QUEUE
    assert not hasattr(first, "tag")
    with pytest.raises(TypeError):
        hash(first)
    first.tags = "mine"
    assert first == replace(whole, tags="mine")
    assert copied(second) == whole
    assert repr(third) == repr(whole)


def test_messages_are_decoded_at_once_after_a_listener_asked_for_more_than_the_body() -> None:
    raw = encode(Record("T", 3, 5, 7, b"x", b"TAGS\x01a"))
    reader = MessageReader("", 1 << 20)
    (message,) = reader.pulled(raw, QUEUE)
    assert (message.body, message.queue, message.queue_offset) == (b"x", QUEUE, 5)
    assert type(reader.pulled(raw, QUEUE)[0]) is UndecodedMessage
    assert message.tags == "a"
    assert type(message) is ReceivedMessage
    assert type(reader.pulled(raw, QUEUE)[0]) is ReceivedMessage


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_a_batch_is_decoded_as_strictly_as_messages(some: list[Record], data: st.DataObject) -> None:
    raw = bytearray(b"".join(map(encode, some)))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        messages = READER.pulled(bytes(raw), QUEUE)
    except (RecordError, CannotInflate) as error:
        with pytest.raises(type(error)):
            READER.batch(bytes(raw), QUEUE)
    else:
        assert list(READER.batch(bytes(raw), QUEUE)) == messages


def test_a_batch_holds_only_messages_with_a_wanted_tag() -> None:
    raw = b"".join(encode(Record("T", 3, n, n, b"%d" % n, f"TAGS\x01{'ab'[n % 2]}".encode())) for n in range(5))
    batch = READER.batch(raw, QUEUE, parse_tags("T", "b || c", 0))
    assert (batch.offsets, batch.bodies, batch.tags) == ([1, 3], [b"1", b"3"], ["b", "b"])
    assert repr(batch) == "<MessageBatch of T/broker-a/3: 2 messages from offset 1>"
    assert len(READER.batch(raw, QUEUE, parse_tags("T", "c", 0))) == 0


def test_a_batch_too_large_inflated_is_refused() -> None:
    raw = encode(Record("T", 3, 0, 0, compress(b"x" * 100_000, 5), sys_flag=flags.COMPRESSED))
    with pytest.raises(CannotInflate):
        MessageReader("", 1000).batch(raw, QUEUE)
