"""Every recorded frame of a running RocketMQ 4.9.8: decoded to the documented fields, and encoded to an equivalent
one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketlet.common import fastjson
from rocketlet.remoting import header_rocketmq
from rocketlet.remoting.command import Command, HeaderType, language_of
from rocketlet.remoting.frame_codec import FrameDecoder, decode, encode
from rocketlet.remoting.protocol.header import from_ext, to_ext
from rocketlet.remoting.protocol.offsets import ResetOffsetBody
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, body_crc32
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader, SendRefusedHeader
from tests.support.frames import (
    ANSWER_BODIES,
    ANSWER_HEADERS,
    ANYWHERE,
    REQUEST_BODIES,
    REQUEST_HEADERS,
    Recorded,
    recorded,
)


def command_of(frame: Recorded) -> Command:
    (command,) = FrameDecoder().feed(frame.data)
    return command


def test_there_are_frames_of_both_types() -> None:
    assert len(recorded()) > 2000
    assert {frame.binary for frame in recorded()} == {True, False}


def test_every_frame_has_the_documented_fields() -> None:
    for frame in recorded():
        command, header = command_of(frame), frame.header
        assert command.header_type == (HeaderType.ROCKETMQ if frame.binary else HeaderType.JSON), frame.place
        assert command.code == frame.code, frame.place
        assert command.is_response is frame.is_response, frame.place
        assert command.opaque == header["opaque"], frame.place
        assert command.flag == header["flag"], frame.place
        assert command.version == header["version"], frame.place
        assert command.language is language_of(header["language"]), frame.place
        assert command.remark == header.get("remark"), frame.place
        assert command.ext == _as_text(header.get("extFields")), frame.place
        assert command.body == frame.body, frame.place
        assert len(command.body) == frame.line["bodyLen"], frame.place


def test_every_rewritten_frame_is_equivalent() -> None:
    for frame in recorded():
        command = command_of(frame)
        (again,) = FrameDecoder().feed(encode(command))
        if frame.binary and not command.ext:
            command.ext = again.ext = None  # an empty map and none are the same there
        assert again == command, frame.place


def test_binary_headers_are_written_as_java_writes_them() -> None:
    """Byte for byte, for frames whose remark is not empty: Java cannot write that one either."""
    for frame in recorded():
        if frame.binary:
            command = command_of(frame)
            header_size = int.from_bytes(frame.data[5:8], "big")
            assert header_rocketmq.encode(command) == frame.data[8 : 8 + header_size], frame.place


def test_every_recorded_frame_survives_our_own_header_type() -> None:
    for frame in recorded():
        command = command_of(frame)
        command.header_type = HeaderType.MSGPACK
        (again,) = FrameDecoder().feed(encode(command))
        assert again == command, frame.place


def test_a_recording_as_one_stream_whole_and_byte_by_byte() -> None:
    frames = [frame for frame in recorded() if frame.place.startswith("consumer-push")]
    stream = b"".join(frame.data for frame in frames)
    expected = [command_of(frame) for frame in frames]
    assert FrameDecoder().feed(stream) == expected
    decoder = FrameDecoder()
    found = [command for at in range(len(stream)) for command in decoder.feed(stream[at : at + 1])]
    assert found == expected


@pytest.mark.parametrize("code", sorted(REQUEST_HEADERS))
def test_typed_request_headers_know_every_recorded_field(code: int) -> None:
    cls = REQUEST_HEADERS[code]
    seen = 0
    for frame in recorded():
        broken = frame.place.startswith("errors-") and code in (10, 11, 14, 310, 320)
        if frame.is_response or frame.code != code or broken:
            continue
        ext = command_of(frame).ext or {}
        written = to_ext(from_ext(cls, ext))
        assert {name: written.get(name, "absent") for name in ext if name not in ANYWHERE or name in written} == {
            name: text for name, text in ext.items() if name not in ANYWHERE or name in written
        }, frame.place
        seen += 1
    assert seen


@pytest.mark.parametrize("asked", sorted(ANSWER_HEADERS))
def test_typed_answer_headers_know_every_recorded_field(asked: int) -> None:
    seen = 0
    for frame in recorded():
        ext = command_of(frame).ext
        if not frame.is_response or frame.asked != asked or not ext:
            continue
        cls = ANSWER_HEADERS[asked]
        if cls is SendMessageAnswerHeader and "msgId" not in ext:
            cls = SendRefusedHeader
        assert to_ext(from_ext(cls, ext)) == ext, frame.place
        seen += 1
    assert seen


@pytest.mark.parametrize("code", sorted(REQUEST_BODIES))
def test_request_bodies_round_trip(code: int) -> None:
    cls = REQUEST_BODIES[code]
    seen = 0
    for frame in recorded():
        if not frame.is_response and frame.code == code and frame.body and frame.ext.get("compressed") != "true":
            if frame.place.startswith("errors-") or "cpp" in frame.place:  # no such body; another form
                continue
            assert _contains(fastjson.loads(cls.from_json(frame.body).to_json()), fastjson.loads(frame.body)), (
                frame.place
            )
            seen += 1
    assert seen


@pytest.mark.parametrize("asked", sorted(ANSWER_BODIES))
def test_answer_bodies_round_trip(asked: int) -> None:
    cls = ANSWER_BODIES[asked]
    seen = 0
    for frame in recorded():
        if frame.is_response and frame.asked == asked and frame.code == 0 and frame.body:
            written = cls.from_json(frame.body).to_json()
            assert _contains(fastjson.loads(written), fastjson.loads(frame.body)), frame.place
            seen += 1
    assert seen


def test_the_list_form_for_cpp_clients_is_javas() -> None:
    (frame,) = [one for one in recorded() if one.code == 220 and one.body.startswith(b'{"offsetTable":[')]
    body = ResetOffsetBody.from_json(frame.body)
    assert len(body.offsetTable) == 4
    assert b"".join(body.list_json([body.offsetTable.items()])) == frame.body
    assert ResetOffsetBody.from_json(body.to_json()) == body


def test_a_recorded_compressed_registration_is_read() -> None:
    seen = 0
    for frame in recorded():
        if not frame.is_response and frame.code == 103 and frame.ext.get("compressed") == "true":
            body = RegisterBrokerBody.from_compressed(frame.body)
            assert "TBW102" in body.topicConfigSerializeWrapper.topicConfigTable
            assert body == RegisterBrokerBody.from_compressed(body.to_compressed())
            assert str(body_crc32(frame.body)) == frame.ext["bodyCrc32"]
            seen += 1
    assert seen


def _as_text(ext: dict[str, Any] | None) -> dict[str, str] | None:
    if ext is None:
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in ext.items()}


def _contains(ours: Any, theirs: Any) -> bool:
    """Whether ours contains everything in theirs, with equal values; lists that Java keeps as sets in any order."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return False
        ours, theirs = _by_parsed_key(ours), _by_parsed_key(theirs)
        return all(key in ours and _contains(ours[key], value) for key, value in theirs.items() if value is not None)
    if isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and len(ours) == len(theirs)
            and all(any(_contains(mine, one) for mine in ours) for one in theirs)
        )
    return ours == theirs or (isinstance(theirs, float) and float(ours) == theirs)


def _by_parsed_key(table: dict[str, Any]) -> dict[Any, Any]:
    """Keys that are objects compare by content, not by the order of their fields."""
    return {
        tuple(sorted(fastjson.loads(key).items())) if key.startswith("{") else key: value
        for key, value in table.items()
    }


def test_decode_takes_a_view_of_the_body() -> None:
    frame = next(frame for frame in recorded() if frame.body and not frame.binary)
    size = int.from_bytes(frame.data[5:8], "big")
    command = decode(0, frame.data[8 : 8 + size], memoryview(frame.data)[8 + size :])
    assert command == command_of(frame)
