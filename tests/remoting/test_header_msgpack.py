"""Our own header type: plain msgpack, readable by any implementation, with CRC-32C of the body."""

from __future__ import annotations

import msgpack
import pytest

from rocketlet.remoting import header_msgpack
from rocketlet.remoting.command import Command, HeaderType, Language
from rocketlet.remoting.errors import ChecksumError, FrameError
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader

COMMAND = Command(14, 5, 2, Language.PYTHON, 409, "r", {"queueId": "3"}, b"123456789", HeaderType.MSGPACK)
CHECKSUM = 0xE3069283  # of 123456789, from the definition of CRC-32C


def test_another_implementation_reads_the_same() -> None:
    raw = header_msgpack.encode(COMMAND)
    assert msgpack.unpackb(raw) == [14, 2, 5, 3, 409, CHECKSUM, "r", {"queueId": "3"}]
    assert header_msgpack.decode(raw, COMMAND.body) == COMMAND


def test_another_implementations_output_is_read() -> None:
    raw = msgpack.packb([14, 2, 5, 3, 409, CHECKSUM, "r", {"queueId": "3"}, "from a later version"])
    assert header_msgpack.decode(raw, COMMAND.body) == COMMAND
    decode = header_msgpack.typed_decoder(QueryConsumerOffsetHeader).decode
    assert decode(raw).header == QueryConsumerOffsetHeader(3)
    assert header_msgpack.typed_decoder(None).decode(raw).header is None


def test_an_empty_body_has_no_checksum() -> None:
    assert msgpack.unpackb(header_msgpack.encode(Command(1)))[5] == 0
    assert header_msgpack.checksum_of([b"12345", b"", memoryview(b"6789")]) == CHECKSUM


def test_a_damaged_body_is_refused() -> None:
    with pytest.raises(ChecksumError, match="damaged"):
        header_msgpack.decode(header_msgpack.encode(COMMAND), b"123456788")


@pytest.mark.parametrize("raw", [b"", b"\x98", b"\xc0", b"\x93\x01\x02\x03", b"\xff" * 30, msgpack.packb({"code": 1})])
def test_an_invalid_header_is_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        header_msgpack.decode(raw, b"")


@pytest.mark.parametrize("code", [0, 14, 127, 128, 310, 32767])
def test_the_code_is_found_without_decoding(code: int) -> None:
    assert header_msgpack.code_of(header_msgpack.encode(Command(code))) == code


@pytest.mark.parametrize("raw", [b"", b"\x98", b"\x98\xd1\xff\xff", b"\x98\xe0"])
def test_an_unusually_encoded_code_is_not_guessed(raw: bytes) -> None:
    assert header_msgpack.code_of(raw) == -1
