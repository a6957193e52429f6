"""The binary header: the loop that reads any, and the fast path for sends and pulls that must never differ from it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting import header_rocketmq, header_rocketmq_typed
from rocketlet.remoting.command import Command, HeaderType, Language
from rocketlet.remoting.errors import FrameError, HeaderError
from rocketlet.remoting.header_rocketmq import encode_map
from rocketlet.remoting.header_rocketmq_typed import CACHED_RUNS, LONGEST_RUN, read_claim, read_pull, read_send
from rocketlet.remoting.protocol.header import Header, from_ext
from rocketlet.remoting.protocol.pulling import PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.signing import content_of

SEND = {
    "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01k\x02UNIQ_KEY\x017F0000010A1B\x02TAGS\x01TagA", "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
PULL = {
    "consumerGroup": "CG", "topic": "TopicTest", "queueId": "3", "queueOffset": "123", "maxMsgNums": "32",
    "sysFlag": "3", "commitOffset": "100", "suspendTimeoutMillis": "15000", "subscription": "*",
    "subVersion": "1700000000000", "expressionType": "TAG", "bname": "broker-a",
}  # fmt: skip
SIGNED = {**SEND, "AccessKey": "webshop", "Signature": "cwzR7rm3GEcNIBw6uWX9s0sGQlK="}


def head(code: int = 1, remark: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">hBhiii", code, 0, 409, 7, 0, len(remark) if length is None else length) + remark


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(20),
        head(length=-1) + bytes(4),
        head(length=5) + bytes(4),
        head() + struct.pack(">i", -1),
        head() + struct.pack(">i", 1),
        head() + struct.pack(">ih", 2, 0),
        head() + struct.pack(">ihi", 6, 1, 0),
        head() + struct.pack(">ihi", 6, 0, 1),
        head() + struct.pack(">ihi", 6, 0, -1),
        head() + struct.pack(">ihi", 6, -1, 0),
        head() + struct.pack(">ih", 3, 0) + b"x",
    ],
)
def test_false_lengths_are_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        header_rocketmq.decode(raw)


def test_empty_and_absent_texts() -> None:
    """A value of length 0 is the empty text, or signatures over it fail; a remark of length 0 is none."""
    command = header_rocketmq.decode(head() + struct.pack(">ihi", 6, 0, 0))
    assert command.ext == {"": ""}
    assert command.remark is None
    assert header_rocketmq.decode(head() + bytes(4)).ext is None


def test_numbers_are_signed_and_large_codes_truncated_as_in_java() -> None:
    assert header_rocketmq.decode(head(-5) + bytes(4)).code == -5
    pop = header_rocketmq.decode(header_rocketmq.encode(Command(200050)))
    assert pop.code == 3442


def test_unknown_languages_and_invalid_utf_8() -> None:
    raw = bytearray(head() + struct.pack(">ihi", 8, 1, 1))
    raw[27:] = b""
    raw[-4:] = b"\xff\0\0\0"
    raw = bytearray(
        struct.pack(">hBhiii", 1, 200, 1, 1, 0, 1) + b"\xff" + struct.pack(">ih", 8, 1) + b"\xff\0\0\0\x01\xfe"
    )
    command = header_rocketmq.decode(bytes(raw))
    assert command.language is Language.OTHER
    assert command.remark == "\ufffd"
    assert command.ext == {"\ufffd": "\ufffd"}


def test_an_exact_header_is_written() -> None:
    command = Command(0, 5, 1, Language.JAVA, 409, None, {"offset": "42"}, header_type=HeaderType.ROCKETMQ)
    raw = header_rocketmq.encode(command)
    assert raw.hex() == "00000001990000000500000001000000000000000e00066f6666736574000000023432"
    assert header_rocketmq.encode_answer(0, 5, 409, None, {"offset": "42"}) == raw


def slow(cls: type[Header], raw: bytes) -> Header | str:
    try:
        return from_ext(cls, header_rocketmq.decode_map(raw, 0, len(raw)))
    except (FrameError, HeaderError) as error:
        return type(error).__name__


def quick(cls: type[Header], raw: bytes) -> Header | None:
    found: Header | None = read_send(raw, 0) if cls is SendMessageHeaderV2 else read_pull(raw, 0)
    return found


@pytest.mark.parametrize(("cls", "fields"), [(SendMessageHeaderV2, SEND), (PullMessageHeader, PULL)])
def test_fields_in_javas_order_take_the_fast_path(cls: type[Header], fields: dict[str, str]) -> None:
    raw = encode_map(fields)
    assert quick(cls, raw) == slow(cls, raw)
    optional = {name: text for name, text in fields.items() if name not in ("n", "m", "subscription", "bname")}
    assert quick(cls, encode_map(optional)) == slow(cls, encode_map(optional))
    with_more = {**fields, "ReqT": "0", "AccessKey": "ak", "Signature": "sig"}
    assert quick(cls, encode_map(with_more)) == slow(cls, encode_map(with_more))


@pytest.mark.parametrize(("cls", "fields"), [(SendMessageHeaderV2, SEND), (PullMessageHeader, PULL)])
def test_fields_in_another_order_take_the_loop(cls: type[Header], fields: dict[str, str]) -> None:
    raw = encode_map(dict(reversed(fields.items())))
    assert quick(cls, raw) is None
    assert slow(cls, raw) == from_ext(cls, fields)


odd_texts = st.sampled_from(
    ["", "0", "-1", "+5", " 7", "1_0", "12345678901234567890", "x", "true", "\u0664", "\0\x01g\0\0\0\x0d1234567890123",
     "\0\x01b\0\0\0\x04evil", "\0\x0cqueueOffset", "\0\x01i\0\0\0\0", "a\0b", "\ud7ff\U0001f600", "1700000000000"]
)  # fmt: skip


def mutated(fields: dict[str, str], data: st.DataObject) -> bytes:
    """A map with fields changed, dropped, duplicated, moved, and bytes changed."""
    items = list(fields.items())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(items) - 1))
        change = data.draw(st.sampled_from(["text", "drop", "double", "move"]))
        name = data.draw(st.sampled_from([*fields, "l", "x"]))
        if change == "text":
            items[at] = items[at][0], data.draw(odd_texts)
        elif change == "drop" and len(items) > 1:
            del items[at]
        elif change == "double":
            items.insert(at, (name, data.draw(odd_texts)))
        else:
            items.append(items.pop(at))
    raw = bytearray(b"".join(encode_map({name: text}) for name, text in items))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 13, 48, 255]))
    return bytes(raw)


@given(st.data())
@pytest.mark.parametrize(
    ("cls", "fields"), [(SendMessageHeaderV2, SEND), (SendMessageHeaderV2, SIGNED), (PullMessageHeader, PULL)]
)
def test_the_fast_path_never_differs_from_the_loop(
    cls: type[Header], fields: dict[str, str], data: st.DataObject
) -> None:
    raw = mutated(fields, data)
    try:
        found = quick(cls, raw)
    except HeaderError:
        found = None
    assert found is None or found == slow(cls, raw)


@given(st.data())
def test_the_signed_fields_are_those_the_loop_finds(data: st.DataObject) -> None:
    raw = mutated(SIGNED, data)
    found = read_claim(raw, 0)
    if found is not None:
        fields = header_rocketmq.decode_map(raw, 0, len(raw))
        assert found == (fields["AccessKey"], fields["Signature"].encode(), content_of(fields))


def test_signed_sends_take_the_fast_path_and_are_cached_without_signatures() -> None:
    header_rocketmq_typed._send_closings.clear()
    for number in range(20):
        raw = encode_map({**SIGNED, "Signature": f"{number:028}"})
        assert quick(SendMessageHeaderV2, raw) == slow(SendMessageHeaderV2, raw)
        assert read_claim(raw, 0) == (
            "webshop", f"{number:028}".encode(), content_of({**SIGNED, "Signature": ""})
        )  # fmt: skip
    assert len(header_rocketmq_typed._send_closings) == 1


def test_a_duplicate_topic_field_is_not_cached() -> None:
    """The access check reads the loop's map: a name inside a value, or a second name, must not reach the handler."""
    inside = {**SEND, "a": "PG\0\x01b\0\0\0\x06Secret\0\x01c\0\0\0\x01x"}
    behind = encode_map(SEND) + encode_map({"b": "Secret"})
    in_front = encode_map({"b": "Secret"}) + encode_map(SEND)
    for raw in (encode_map(inside), behind, in_front):
        found = quick(SendMessageHeaderV2, raw)
        assert found is None or found == slow(SendMessageHeaderV2, raw)
    assert quick(SendMessageHeaderV2, behind) is None


def test_the_cache_is_bounded() -> None:
    long_group = {**SEND, "a": "x" * LONGEST_RUN}
    assert quick(SendMessageHeaderV2, encode_map(long_group)) is None
    for number in range(CACHED_RUNS + 10):
        assert read_send(encode_map({**SEND, "a": f"PG-{number}"}), 0) is not None
    assert len(header_rocketmq_typed._send_openings) <= CACHED_RUNS


@pytest.mark.parametrize("name", [b"KEYS", b"wzR7"])
def test_a_signed_send_that_is_no_text_is_read_the_general_way(name: bytes) -> None:
    raw = bytearray(b"".join(encode_map({key: text}) for key, text in SIGNED.items()))
    assert read_claim(bytes(raw), 0) is not None
    raw[raw.index(name)] = 255
    assert read_claim(bytes(raw), 0) is None
