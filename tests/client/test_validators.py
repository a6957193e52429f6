from __future__ import annotations

import pytest

from rocketlet.client.errors import InvalidMessage, InvalidUse
from rocketlet.client.validators import check_group, check_message
from rocketlet.common.message import Message


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message("", b"x"), "blank"),
        (Message("a b", b"x"), "characters other than"),
        (Message("t" * 128, b"x"), "at most 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "system topic"),
        (Message("T", b""), "no body"),
        (Message("T", b"x" * 101), "101 bytes, the limit is 100"),
        (Message("T", b"x", properties={"TAGS": "a"}), "belongs to the system"),
        (Message("T", b"x", properties={"a": "b\x02c"}), "separators"),
        (Message("T", b"x", properties={"a": ""}), "empty name or value"),
    ],
)
def test_an_undeliverable_message_is_refused(message: Message, says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        check_message(message, max_size=100)


def test_a_valid_message_passes_repeatedly() -> None:
    for _ in range(2):
        check_message(Message("T-good_1|%x", b"x", tags="a", keys=["k"], properties={"a": "b"}))


@pytest.mark.parametrize("group", ["", "a b", "g" * 256, "DEFAULT_PRODUCER"])
def test_an_invalid_group_is_refused(group: str) -> None:
    with pytest.raises(InvalidUse):
        check_group(group, reserved="DEFAULT_PRODUCER")


def test_a_valid_group_passes() -> None:
    check_group("g" * 255, reserved="DEFAULT_PRODUCER")
