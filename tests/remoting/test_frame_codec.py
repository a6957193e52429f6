"""Frames: RocketMQ's worked examples, both ways, whole and in pieces; false lengths."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting import frame_codec
from rocketlet.remoting.command import Command, HeaderType, Language
from rocketlet.remoting.errors import ChecksumError, FrameError
from rocketlet.remoting.frame_codec import FRAME_LIMIT, FrameDecoder, ReceiveBuffer, cut, encode, encode_answer

QUERY_OFFSET = bytes.fromhex(
    "000000810000007d7b22636f6465223a31342c226c616e6775616765223a224a415641222c2276657273696f6e223a3430392c226f7061717565"
    "223a352c22666c6167223a302c226578744669656c6473223a7b22636f6e73756d657247726f7570223a224347222c22746f706963223a225431"
    "222c2271756575654964223a2230227d7d"
)
OFFSET_ANSWER = bytes.fromhex("000000270100002300000001990000000500000001000000000000000e00066f6666736574000000023432")
NOT_FOUND = bytes.fromhex("000000220100001e00160001990000000600000001000000094e6f7420666f756e6400000000")
ONEWAY = bytes.fromhex(
    "00000067000000637b22636f6465223a34302c226c616e6775616765223a224a415641222c2276657273696f6e223a3430392c226f7061717565"
    "223a37372c22666c6167223a322c226578744669656c6473223a7b22636f6e73756d657247726f7570223a224347227d7d"
)
HEARTBEAT_BODY = b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[]}'
HEARTBEAT = (
    bytes.fromhex("0000008f0000003f")
    + b'{"code":34,"language":"JAVA","version":409,"opaque":6,"flag":0}'
    + HEARTBEAT_BODY
)
GO_HEARTBEAT = bytes.fromhex("0000006501000015002209013d00000006000000000000000000000000") + HEARTBEAT_BODY

EXAMPLES = {
    QUERY_OFFSET: Command(14, 5, 0, Language.JAVA, 409, None, {"consumerGroup": "CG", "topic": "T1", "queueId": "0"}),
    OFFSET_ANSWER: Command(0, 5, 1, Language.JAVA, 409, None, {"offset": "42"}, b"", HeaderType.ROCKETMQ),
    NOT_FOUND: Command(22, 6, 1, Language.JAVA, 409, "Not found", None, b"", HeaderType.ROCKETMQ),
    ONEWAY: Command(40, 77, 2, Language.JAVA, 409, None, {"consumerGroup": "CG"}),
    HEARTBEAT: Command(34, 6, 0, Language.JAVA, 409, None, None, HEARTBEAT_BODY),
    GO_HEARTBEAT: Command(34, 6, 0, Language.GO, 317, None, None, HEARTBEAT_BODY, HeaderType.ROCKETMQ),
}

texts = st.text(max_size=20)
commands = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    language=st.sampled_from(Language),
    version=st.integers(0, (1 << 15) - 1),
    remark=st.none() | st.text(min_size=1, max_size=20),
    ext=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=5),
    body=st.binary(max_size=100),
    header_type=st.sampled_from(HeaderType),
)


@pytest.mark.parametrize("frame", EXAMPLES)
def test_worked_examples_are_read(frame: bytes) -> None:
    assert FrameDecoder().feed(frame) == [EXAMPLES[frame]]


@pytest.mark.parametrize("frame", [OFFSET_ANSWER, NOT_FOUND, GO_HEARTBEAT])
def test_worked_binary_examples_are_written_byte_for_byte(frame: bytes) -> None:
    assert encode(EXAMPLES[frame]) == frame


@pytest.mark.parametrize("frame", [QUERY_OFFSET, ONEWAY, HEARTBEAT])
def test_worked_json_examples_are_written_with_the_same_fields(frame: bytes) -> None:
    written = encode(EXAMPLES[frame])
    size = int.from_bytes(written[5:8], "big")
    header = json.loads(written[8 : 8 + size])
    assert header.pop("serializeTypeCurrentRPC") == "JSON"
    assert header == json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    assert len(written) == 4 + int.from_bytes(written[:4], "big")


@given(st.lists(commands, max_size=5), st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_frames_round_trip_in_any_chunks(sent: list[Command], sizes: list[int]) -> None:
    """Whatever is written is read back unchanged, however the stream is divided."""
    stream = b"".join(map(encode, sent))
    decoder, found, at = FrameDecoder(), [], 0
    for size in [*sizes, *[1] * (len(stream) - sum(sizes))]:
        found += decoder.feed(stream[at : at + size])
        at += size
    assert found == sent
    assert FrameDecoder().feed(stream) == sent


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (struct.pack(">II", FRAME_LIMIT - 3, 0), "frameMaxLength"),
        (struct.pack(">iI", -1, 0), "frameMaxLength"),
        (struct.pack(">II", 3, 0), "header"),
        (struct.pack(">II", 0, 0), "header"),
        (struct.pack(">II", 10, 7), "header"),
        (struct.pack(">II", 100, 0xFFFFFF), "header"),
    ],
)
def test_false_lengths_are_detected_in_the_first_eight_bytes(head: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        FrameDecoder().feed(head)
    assert cut(head).need == 8


def test_frames_before_a_broken_one_are_returned() -> None:
    found = cut(QUERY_OFFSET + ONEWAY + b"\xff" * 8)
    assert len(found.frames) == 2
    assert found.error is not None
    decoder = FrameDecoder()
    assert len(decoder.feed(QUERY_OFFSET + b"\xff" * 8)) == 1
    with pytest.raises(FrameError):
        decoder.feed(b"")


def test_the_longest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    head = struct.pack(">II", 1000 - 4, 0)
    assert cut(head, 1000).error is None
    assert cut(head, 999).error is not None


def test_a_frame_without_header_or_of_an_unknown_type_is_refused() -> None:
    for header_type in range(4):
        with pytest.raises(FrameError):
            FrameDecoder().feed(struct.pack(">II", 4, header_type << 24))
    with pytest.raises(FrameError, match="type 3"):
        FrameDecoder().feed(struct.pack(">II", 6, 3 << 24 | 2) + b"{}")


def test_a_command_too_long_for_any_receiver_is_not_written() -> None:
    body = bytes(FRAME_LIMIT - 100)
    with pytest.raises(FrameError, match="to send"):
        encode(Command(310, body=body))
    with pytest.raises(FrameError, match="to send"):
        encode_answer(0, 1, 0, None, [body, body], None)


@pytest.mark.parametrize("header_type", HeaderType)
def test_an_answer_in_several_buffers_reads_as_one(header_type: HeaderType) -> None:
    parts = encode_answer(header_type, 7, 19, {"a": "b"}, [b"one", memoryview(b"two"), bytearray(b"three")], "found")
    (command,) = FrameDecoder().feed(b"".join(parts))
    assert command == Command(19, 7, 1, Language.JAVA, 409, "found", {"a": "b"}, b"onetwothree", header_type)


@pytest.mark.parametrize("header_type", HeaderType)
def test_an_answer_without_a_body_is_one_buffer(header_type: HeaderType) -> None:
    (frame,) = encode_answer(header_type, 7, 0, None, b"", None)
    (command,) = FrameDecoder().feed(bytes(frame))
    assert command == Command(0, 7, 1, Language.JAVA, header_type=header_type)


@given(commands, st.data())
def test_a_damaged_body_never_passes_our_checksum(command: Command, data: st.DataObject) -> None:
    command.header_type, command.body = HeaderType.MSGPACK, command.body + b"x"
    frame = bytearray(encode(command))
    at = data.draw(st.integers(len(frame) - len(command.body), len(frame) - 1))
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ChecksumError):
        FrameDecoder().feed(bytes(frame))


def test_the_receive_buffer_joins_chunks_once() -> None:
    """A frame of 1 MiB in pieces of 1 KiB is joined once, not a thousand times."""
    buffer = ReceiveBuffer()
    frame = encode(Command(310, body=bytes(1 << 20)))
    first = buffer.feed(frame[:1024])
    assert first is not None
    found = cut(first)
    assert found.need == len(frame)
    buffer.keep(first, found.rest, found.need)
    pieces = [frame[at : at + 1024] for at in range(1024, len(frame), 1024)]
    assert [buffer.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert buffer.feed(pieces[-1]) == frame
    assert len(buffer) == 0


def test_only_a_copy_of_the_remainder_is_kept() -> None:
    buffer = ReceiveBuffer()
    data = QUERY_OFFSET + ONEWAY[:10]
    assert buffer.feed(data) is data
    buffer.keep(data, len(QUERY_OFFSET), len(ONEWAY))
    assert len(buffer) == 10
    assert buffer.feed(ONEWAY[10:]) == ONEWAY


@pytest.mark.process
def test_only_our_own_header_type_needs_the_checksum_module() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from rocketlet.remoting.frame_codec import *; from rocketlet.remoting.command import *;"
        "encode(Command(1)); encode(Command(1, header_type=HeaderType.ROCKETMQ)); assert 'crc32c' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert frame_codec.HEADER_LIMIT == 0xFFFFFF
