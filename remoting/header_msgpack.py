"""The msgpack header (type 2): only between our own ends, with a checksum of the body.

One array; readers take what they know and skip what a later version may append:

    [code, flag, opaque, language, version, crc32c of the body (0 = empty), remark or nil, map of fields or nil]

The map's values are text, as in the other types. TCP's own checksum misses one damaged segment in 65,536; CRC-32C
detects up to three flipped bits in a frame. Only this type has room for it, since the others are RocketMQ's.

The only module that uses msgpack. Decoding is msgspec's (typed, in one pass); the format is plain msgpack.

Java: none
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from crc32c import crc32c
from msgspec import Struct

from rocketlet.common.fastjson import as_text
from rocketlet.remoting.command import Command, HeaderType, language_of
from rocketlet.remoting.errors import ChecksumError, FrameError
from rocketlet.remoting.protocol.header import UNDECODABLE, Header, Int


class Envelope(Struct, gc=False, array_like=True):
    """The array, up to its map. Subclasses add `header`, typed."""

    code: Int
    flag: Int
    opaque: Int
    language: Int
    version: Int
    checksum: int
    remark: str | None

    @property
    def header(self) -> Header | None:
        """None, if no type was requested."""
        return None


class _AnyEnvelope(Envelope, gc=False, array_like=True):
    ext: dict[str, str] | None


_decode = msgspec.msgpack.Decoder(_AnyEnvelope).decode
_encode = msgspec.msgpack.Encoder(enc_hook=as_text).encode


@cache  # creating one takes 0.5 ms, and every server has 80
def typed_decoder(header: type[Header] | None) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of complete headers with a map of this type; without a type it is skipped."""
    if header is None:
        return msgspec.msgpack.Decoder(Envelope)
    envelope = msgspec.defstruct(
        f"{header.__name__}Envelope", [("header", header)], bases=(Envelope,), gc=False, array_like=True
    )
    return msgspec.msgpack.Decoder(envelope, strict=False)


def code_of(raw: bytes) -> int:
    """The code at the beginning of the array, in the usual encoding; -1 in any other."""
    if raw[1:2] == b"\xcd":
        return int.from_bytes(raw[2:4], "big")
    if raw[1:2] == b"\xcc":
        return int.from_bytes(raw[2:3], "big")
    return raw[1] if len(raw) > 1 and raw[1] < 0x80 else -1


def decode(raw: bytes, body: bytes | memoryview | None) -> Command:
    """Any header; the body is for the checksum (None: unchecked). Raises FrameError, ChecksumError."""
    try:
        header = _decode(raw)
    except UNDECODABLE as error:
        raise FrameError(f"an unreadable msgpack header: {error}") from None
    if body is not None:
        check(header.checksum, body)
    return Command(
        header.code,
        header.opaque,
        header.flag,
        language_of(header.language),
        header.version,
        header.remark,
        header.ext,
        bytes(body or b""),
        HeaderType.MSGPACK,
    )


def check(checksum: int, body: bytes | memoryview) -> None:
    """Raises ChecksumError if the body is not the one that was sent."""
    if (crc32c(body) if body else 0) != checksum:
        raise ChecksumError(f"a body of {len(body)} bytes arrived damaged (CRC-32C)")


def encode(command: Command) -> bytes:
    """The header's bytes."""
    checksum = crc32c(command.body) if command.body else 0
    return _encode(
        (
            int(command.code),
            command.flag,
            command.opaque,
            int(command.language),
            command.version,
            checksum,
            command.remark,
            command.ext,
        )
    )


def encode_answer(
    code: int, opaque: int, version: int, remark: str | None, ext: dict[str, str] | None, checksum: int
) -> bytes:
    """An answer's header without a Command in between."""
    return _encode((code, 1, opaque, 0, version, checksum, remark, ext))


def checksum_of(parts: Iterable[bytes | bytearray | memoryview]) -> int:
    """The checksum of a body in several buffers."""
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    return checksum
