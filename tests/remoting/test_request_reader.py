"""From bytes to typed requests: every path gives the same result."""

from __future__ import annotations

import json
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting import header_json, header_msgpack, header_rocketmq
from rocketlet.remoting.command import ONEWAY, Command, HeaderType, Language
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import ChecksumError, FrameError, HeaderError
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.handler import Request
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader
from rocketlet.remoting.protocol.pulling import PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.request_reader import RequestReader, UnreadableRequest
from tests.support.frames import REQUEST_HEADERS, recorded

READER = RequestReader({**REQUEST_HEADERS, 34: None})
NOBODY = cast(Connection, None)
SEND = {
    "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01k", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


def read(command: Command) -> Request:
    raw = encode(command)
    size = int.from_bytes(raw[5:8], "big")
    found = READER.read(command.header_type, raw[8 : 8 + size], memoryview(raw)[8 + size :], NOBODY, 1.5)
    assert isinstance(found, Request)
    return found


def test_every_recorded_request_is_typed_as_its_map() -> None:
    seen = 0
    for frame in recorded():
        if frame.is_response or frame.code not in REQUEST_HEADERS:
            continue
        size = int.from_bytes(frame.data[5:8], "big")
        raw, body = frame.data[8 : 8 + size], frame.data[8 + size :]
        try:
            request = READER.read(frame.data[4], raw, body, NOBODY, 0.0)
        except UnreadableRequest:
            assert frame.place.startswith("errors-")
            continue
        assert isinstance(request, Request)
        assert request.header == from_ext(REQUEST_HEADERS[frame.code], frame.ext), frame.place
        assert (request.code, request.opaque, request.flag) == (
            frame.code,
            frame.header["opaque"],
            frame.header["flag"],
        )
        assert (request.version, request.remark) == (frame.header["version"], frame.header.get("remark"))
        assert request.ext == frame.ext
        seen += 1
    assert seen > 500


def test_recorded_answers_are_distinguished_from_requests() -> None:
    for frame in recorded():
        if frame.is_response:
            size = int.from_bytes(frame.data[5:8], "big")
            found = READER.read(frame.data[4], frame.data[8 : 8 + size], frame.body, NOBODY, 0.0)
            assert isinstance(found, Command), frame.place
            assert (found.code, found.body) == (frame.code, frame.body)


@pytest.mark.parametrize("header_type", HeaderType)
@pytest.mark.parametrize("code", [10, 34, 310, 9999])
def test_an_answer_with_the_number_of_a_request_code_is_an_answer(header_type: HeaderType, code: int) -> None:
    raw = encode(Command(code, 7, 1, ext={"e": "1"}, header_type=header_type))
    size = int.from_bytes(raw[5:8], "big")
    assert isinstance(READER.read(header_type, raw[8 : 8 + size], b"", NOBODY, 0.0), Command)


@given(
    st.sampled_from(HeaderType),
    st.permutations(sorted(SEND)),
    st.dictionaries(
        st.sampled_from(sorted(SEND)), st.sampled_from(["0", "17", "true", "x\x01y", "1700000000001", "\u00e9"])
    ),
    st.none() | st.text(min_size=1, max_size=5),
)
def test_a_send_means_the_same_in_any_type_and_order(
    header_type: HeaderType, order: list[str], changes: dict[str, str], remark: str | None
) -> None:
    ext = {name: (SEND | changes)[name] for name in order}
    command = Command(310, 9, ONEWAY, Language.CPP, 333, remark, ext, b"body", header_type)
    try:
        expected = from_ext(SendMessageHeaderV2, ext)
    except HeaderError:
        with pytest.raises(UnreadableRequest):
            read(command)
        return
    request = read(command)
    assert request.header == expected
    assert (request.opaque, request.flag, request.version, request.remark) == (9, ONEWAY, 333, remark)
    assert (request.language, bytes(request.body), request.ext) == (Language.CPP, b"body", ext)


@pytest.mark.parametrize(
    "form", ['{"code":14,%s}', '{"code": 14, %s}', '{%s,"code":14}', '{"code":"14",%s}', "{code:14,%s}\n"]
)
@pytest.mark.parametrize("number", ["3", '"3"', "3.0", '"3.0"'])
def test_a_json_request_in_every_form_clients_send(form: str, number: str) -> None:
    raw = (form % f'"extFields":{{"queueId":{number},"topic":"T","consumerGroup":"G"}},"opaque":"5"').encode()
    request = READER.read(0, raw, b"", NOBODY, 0.0)
    assert isinstance(request, Request)
    assert request.header == QueryConsumerOffsetHeader(3, "T", "G")
    assert request.opaque == 5


def test_a_cpp_clients_numbers_and_booleans() -> None:
    ext = (
        '{"queueId":1,"flag":0,"sysFlag":0,"batch":"0","unitMode":"0","bornTimestamp":"17","topic":"T","AccessKey":""}'
    )
    request = READER.read(0, b'{"code":10,"extFields":%b,"flag":0,"language":"CPP"}\n' % ext.encode(), b"", NOBODY, 0.0)
    assert isinstance(request, Request)
    assert request.header == SendMessageHeader(1, "T", bornTimestamp=17)
    assert request.ext["AccessKey"] == ""


def test_hot_headers_bypass_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Java's order in a binary header, and any order in the others, no command is created."""

    def forbidden(*_: object) -> None:
        raise AssertionError("the general way")

    names = "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion"
    pull = dict.fromkeys([*names.split(), "expressionType"], "7")
    commands = [
        Command(code, ext=ext, header_type=header_type)
        for code, ext in ((310, SEND), (11, pull))
        for header_type in HeaderType
    ]
    frames = [encode(command) for command in commands]
    READER.read(2, frames[2][8:], b"", NOBODY, 0.0)
    for module in (header_json, header_rocketmq, header_msgpack):
        monkeypatch.setattr(module, "decode", forbidden)
    for command, frame in zip(commands, frames, strict=True):
        request = READER.read(command.header_type, frame[8:], b"", NOBODY, 0.0)
        assert isinstance(request, Request)
        assert isinstance(request.header, SendMessageHeaderV2 if command.code == 310 else PullMessageHeader)


def test_a_request_that_cannot_be_typed_can_be_answered() -> None:
    with pytest.raises(UnreadableRequest, match="queueId is no number") as caught:
        read(Command(14, 7, ext={"queueId": "x"}))
    assert (caught.value.request.opaque, caught.value.request.code) == (7, 14)


@pytest.mark.parametrize("header_type", HeaderType)
def test_unserved_codes_and_codes_without_a_header(header_type: HeaderType) -> None:
    assert read(Command(9999, 1, ext={"x": "y"}, header_type=header_type)).header is None
    heartbeat = read(Command(34, 1, ext={"x": "y"}, body=b"{}", header_type=header_type))
    assert heartbeat.header is None
    assert heartbeat.ext == {"x": "y"}


def test_a_damaged_body_is_detected_on_the_typed_path_too() -> None:
    frame = encode(Command(310, ext=SEND, body=b"body", header_type=HeaderType.MSGPACK))
    size = int.from_bytes(frame[5:8], "big")
    with pytest.raises(ChecksumError):
        READER.read(2, frame[8 : 8 + size], b"bodx", NOBODY, 0.0)


@given(
    st.binary(max_size=80),
    st.integers(0, 4),
    st.sampled_from([b"", b'{"code":310,', b'{"code":34,', b"\x01\x36", b"\x98\xcd\x01\x36"]),
)
def test_any_bytes_are_a_request_an_answer_or_a_frame_error(junk: bytes, header_type: int, begin: bytes) -> None:
    try:
        READER.read(header_type, begin + junk, b"", NOBODY, 0.0)
    except (FrameError, UnreadableRequest):
        pass  # the only errors allowed


async def test_time_and_connection_are_the_turns() -> None:
    now = trio.current_time()
    request = READER.read(0, json.dumps({"code": 34}).encode(), b"", NOBODY, now)
    assert isinstance(request, Request)
    assert request.received_at == now
    assert request.connection is NOBODY
