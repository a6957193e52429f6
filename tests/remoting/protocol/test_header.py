"""Typed headers from maps of text and back: what real clients write, and what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting.errors import HeaderError
from rocketlet.remoting.protocol.header import Header, Int, Long, from_ext, to_ext
from rocketlet.remoting.protocol.offsets import OffsetAnswerHeader, QueryConsumerOffsetHeader
from rocketlet.remoting.protocol.pulling import QueryMessageHeader
from rocketlet.remoting.protocol.registration import RegisterBrokerHeader
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2


class Every(Header):
    must: Int
    number: Int = 7
    long: Long = 8
    yes: bool = False
    text: str = ""
    maybe: Int | None = None
    perhaps: bool | None = None
    words: str | None = None


def test_written_as_java_does() -> None:
    assert to_ext(Every(1, text="x", yes=True, perhaps=False)) == {
        "must": "1",
        "number": "7",
        "long": "8",
        "yes": "true",
        "text": "x",
        "perhaps": "false",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 5), ("-5", -5), ("+5", 5), ("007", 7), (" 5 ", 5), ("2147483647", 2147483647), ("-2147483648", -2147483648)],
)
def test_numbers(text: str, expected: int) -> None:
    assert from_ext(Every, {"must": text}).must == expected
    assert from_ext(Every, {"must": "1", "maybe": text}).maybe == expected


@pytest.mark.parametrize("text", ["", "x", "2147483648", "-2147483649", "0x10", "9" * 30, "--1"])
def test_invalid_numbers(text: str) -> None:
    with pytest.raises(HeaderError, match="must is no number"):
        from_ext(Every, {"must": text})
    odd = from_ext(Every, {"must": "1", "number": text, "maybe": text})
    assert (odd.number, odd.maybe) == (7, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        ("1", True),
        ("false", False),
        ("0", False),
        ("no", False),
        ("", False),
    ],
)
def test_booleans(text: str, expected: bool) -> None:
    """`1` is a C++ client's true; Java reads it as false, and then stores that client's batches as one message."""
    found = from_ext(Every, {"must": "1", "yes": text, "perhaps": text})
    assert (found.yes, found.perhaps) == (expected, expected)


def test_a_missing_field() -> None:
    assert from_ext(Every, {"must": "1", "surplus": "x"}) == Every(1)
    with pytest.raises(HeaderError, match="must is missing"):
        from_ext(Every, {})
    with pytest.raises(HeaderError, match="queueId is missing"):
        from_ext(QueryConsumerOffsetHeader, None)


def test_text_is_unchanged() -> None:
    for text in ("null", "5", "true", "", "\0", "\U0001f600"):
        found = from_ext(Every, {"must": "1", "text": text, "words": text})
        assert (found.text, found.words) == (text, text)


@given(
    st.builds(
        Every,
        must=st.integers(-(1 << 31), (1 << 31) - 1),
        long=st.integers(-(1 << 63), (1 << 63) - 1),
        yes=st.booleans(),
        text=st.text(),
        maybe=st.none() | st.integers(0, 9),
        words=st.none() | st.text(),
    )
)
def test_headers_round_trip(header: Every) -> None:
    assert from_ext(Every, to_ext(header)) == header


def test_letters_and_full_names_are_equivalent() -> None:
    letters = SendMessageHeaderV2(3, "T", "PG", "TBW102", 4, 0, 17, 0, "p", 0, False, 16, True, "broker-a")
    words = SendMessageHeader(3, "T", "PG", "TBW102", 4, 0, 17, 0, "p", 0, False, 16, True, "broker-a")
    assert "".join(sorted(to_ext(letters))) == "abcdefghijklmn"
    assert sorted(to_ext(letters).values()) == sorted(to_ext(words).values())
    assert to_ext(words)["defaultTopicQueueNums"] == to_ext(letters)["d"] == "4"


def test_names_that_are_not_python_identifiers() -> None:
    assert to_ext(QueryMessageHeader("T", "k", uniqueKeyQuery=True))["_UNIQUE_KEY_QUERY"] == "true"
    assert from_ext(QueryMessageHeader, {"_UNIQUE_KEY_QUERY": "true"}).uniqueKeyQuery is True


def test_a_registration_without_a_checksum() -> None:
    found = from_ext(RegisterBrokerHeader, {"brokerId": "0", "brokerName": "b"})
    assert (found.bodyCrc32, found.compressed) == (None, False)
    assert to_ext(OffsetAnswerHeader(-1)) == {"offset": "-1"}
