from __future__ import annotations

from datetime import datetime

import pytest

from rocketlet.common.host import pack_host
from rocketlet.common.message_id import (
    InvalidMessageId,
    UniqueIds,
    offset_message_id,
    parse_offset_message_id,
    time_of_unique_id,
)


@pytest.mark.parametrize(
    ("ip", "offset", "text"),
    [
        ("127.0.0.1", 1024, "7F00000100002A9F0000000000000400"),
        ("10.0.0.5", 1000, "0A00000500002A9F00000000000003E8"),
        ("::1", 1024, "0000000000000000000000000000000100002A9F0000000000000400"),
    ],
)
def test_offset_ids(ip: str, offset: int, text: str) -> None:
    assert offset_message_id(pack_host(ip, 10911), offset) == text
    assert parse_offset_message_id(text) == (ip, 10911, offset)
    assert parse_offset_message_id(text.lower()) == (ip, 10911, offset)


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F 0000100002A9F0000000000000400"])
def test_invalid_offset_ids(text: str) -> None:
    with pytest.raises(InvalidMessageId, match="no offset message id"):
        parse_offset_message_id(text)


def ms(*when: int) -> int:
    return int(datetime(*when).timestamp() * 1000)  # type: ignore[arg-type]


def test_unique_ids_count_and_carry_their_time() -> None:
    now = ms(2026, 11, 18, 12, 52, 0)
    ids = UniqueIds(bytes([127, 0, 0, 1]), 0x10A1B, 0x18B4AAC2, lambda: now)
    first, second = ids(), ids()
    assert first[:20] == second[:20] == "7F0000010A1B18B4AAC2"
    assert (first[-4:], second[-4:]) == ("0000", "0001")
    assert time_of_unique_id(first, now) == now
    assert time_of_unique_id(first, now + 3_600_000) == now


def test_unique_ids_across_the_end_of_a_month() -> None:
    times = iter([ms(2026, 12, 31, 23, 59, 59), ms(2027, 1, 1, 0, 0, 1)])
    ids = UniqueIds(bytes(4), 1, 2, lambda: next(times))
    before, after = ids(), ids()
    assert int(after[-12:-4], 16) == 1000
    assert time_of_unique_id(before, ms(2027, 1, 1, 0, 0, 1)) == ms(2026, 12, 31, 23, 59, 59)
    assert time_of_unique_id(after, ms(2027, 1, 1, 0, 0, 1)) == ms(2027, 1, 1, 0, 0, 1)


def test_invalid_unique_ids() -> None:
    with pytest.raises(InvalidMessageId):
        time_of_unique_id("7F", 0)
    with pytest.raises(InvalidMessageId, match="not all of it is hex"):
        time_of_unique_id("z" * 32, 10**12)
