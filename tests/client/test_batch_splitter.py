from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.errors import InvalidMessage, InvalidUse
from rocketlet.client.sending.batch_splitter import check_batch, size_in_batch, split
from rocketlet.common.message import Message
from rocketlet.common.message_properties import encode
from rocketlet.common.message_record import BatchItem, encode_batch

messages = st.builds(
    Message,
    topic=st.sampled_from(["T", "U"]),
    body=st.binary(min_size=1, max_size=300),
    tags=st.none() | st.text("ab€", min_size=1, max_size=5),
    properties=st.dictionaries(
        st.text("xyz", min_size=1, max_size=3), st.text("é1", min_size=1, max_size=9), max_size=3
    ),
    wait_store=st.booleans(),
)


@given(st.lists(messages, max_size=30), st.integers(200, 2000))
def test_batches_keep_order_fit_and_can_be_sent(many: list[Message], limit: int) -> None:
    batches = list(split(many, limit))
    assert list(chain.from_iterable(batches)) == many
    for batch in batches:
        check_batch(batch)
        assert len(batch) == 1 or sum(map(size_in_batch, batch)) <= limit


@given(messages)
def test_the_size_estimate_is_never_too_small(message: Message) -> None:
    properties = encode(message.all_properties() | {"UNIQ_KEY": "0" * 32}).encode()
    assert len(encode_batch([BatchItem(0, message.body, properties)])) <= size_in_batch(message)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ([], "empty"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x"), Message("T", b"x", wait_store=False)], "wait_store"),
        ([Message("T", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
    ],
)
def test_messages_that_cannot_share_a_batch_are_refused(batch: list[Message], says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        check_batch(batch)


@pytest.mark.parametrize(
    ("many", "says"),
    [
        (None, "of type NoneType"),
        (Message("T", b"x"), "give a list"),
        ([b"x"], "is no message"),
        ([Message("T", None)], "body is of type NoneType"),  # type: ignore[arg-type]
        ([Message("T", b"x", keys=[7])], "keys are no str"),  # type: ignore[list-item]
        ([Message("T", b"x", properties={"a": 1})], "property 'a'"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_list_of_messages_is_not_split(many: Any, says: str) -> None:
    with pytest.raises(InvalidUse, match=says):
        list(split(many))


def test_a_batch_has_at_least_a_byte() -> None:
    for wrong in (0, "1", None):
        with pytest.raises(InvalidUse, match="max_bytes is of type"):
            list(split([Message("T", b"x")], wrong))  # type: ignore[arg-type]
