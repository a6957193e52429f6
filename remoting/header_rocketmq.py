"""The ROCKETMQ header (type 1): binary, RocketMQ's own. Its benchmark programs send it.

    2  code       signed         4  length of the map, 0 = no map
    1  language                     then, until its end:
    2  version    signed              2  length of the key, key
    4  opaque                         4  length of the value, value
    4  flag
    4  length of the remark, 0 = no remark; then the remark

A value of length 0 is the empty text (Java since 4.9.4 reads null, and then fails to verify signatures). Invalid UTF-8
becomes U+FFFD, as in Java. Codes over 32767 are truncated to 16 bits, as in Java.

Java: remoting/protocol/RocketMQSerializable.java
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from rocketlet.remoting.command import Command, HeaderType, language_of
from rocketlet.remoting.errors import FrameError

HEAD = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
SMALLEST = HEAD.size + 4

_key_head = struct.Struct(">H")
_value_head = struct.Struct(">i")
_value_length = struct.Struct(">I").unpack_from  # unsigned: a length negative in Java points beyond the end


def decode(raw: bytes) -> Command:
    """Any header. Raises FrameError."""
    if len(raw) < SMALLEST:
        raise FrameError(f"a ROCKETMQ header of {len(raw)} bytes")
    code, language, version, opaque, flag, remark_length = HEAD.unpack_from(raw)
    at = HEAD.size + remark_length
    if remark_length < 0 or at + 4 > len(raw):
        raise FrameError(f"a ROCKETMQ header with a remark of {remark_length} bytes")
    (map_length,) = _value_head.unpack_from(raw, at)
    if map_length < 0 or at + 4 + map_length > len(raw):
        raise FrameError(f"a ROCKETMQ header with a map of {map_length} bytes")
    remark = raw[HEAD.size : at].decode("utf-8", "replace") if remark_length else None
    ext = decode_map(raw, at + 4, at + 4 + map_length) if map_length else None
    return Command(code, opaque, flag, language_of(language), version, remark, ext, b"", HeaderType.ROCKETMQ)


def begin_of_map(raw: bytes) -> int:
    """Where the map begins in a header without a remark that ends with its map; 0 for any other."""
    at = HEAD.size + 4
    plain = len(raw) > at and raw[HEAD.size - 4 : HEAD.size] == b"\0\0\0\0"
    return at if plain and _value_head.unpack_from(raw, HEAD.size)[0] == len(raw) - at else 0


def decode_ext(raw: bytes) -> dict[str, str]:
    """Only the fields. Requires: the header has been decoded before. Raises FrameError."""
    at = HEAD.size + HEAD.unpack_from(raw)[5] + 4
    return decode_map(raw, at, at + _value_head.unpack_from(raw, at - 4)[0])


def decode_map(raw: bytes, at: int, end: int) -> dict[str, str]:
    """The fields between two places. Raises FrameError if a length points beyond the end."""
    ext = {}
    try:
        while at < end:
            value_head = at + 2 + (raw[at] << 8) + raw[at + 1]
            value = value_head + 4
            (length,) = _value_length(raw, value_head)
            key, at = raw[at + 2 : value_head], value + length
            if at > end:
                raise FrameError("a ROCKETMQ header with a field that is longer than the map")
            try:
                ext[key.decode()] = raw[value:at].decode()
            except UnicodeDecodeError:
                ext[key.decode("utf-8", "replace")] = raw[value:at].decode("utf-8", "replace")
    except (struct.error, IndexError):
        raise FrameError("a ROCKETMQ header whose map ends inside a field") from None
    return ext


def encode(command: Command) -> bytes:
    """The header's bytes, with nothing after the map: some readers take the body from where they stopped."""
    return _encode(
        command.code, command.language, command.version, command.opaque, command.flag, command.remark, command.ext
    )


def encode_answer(code: int, opaque: int, version: int, remark: str | None, ext: dict[str, str] | None) -> bytes:
    """An answer's header without a Command in between."""
    return _encode(code, 0, version, opaque, 1, remark, ext)


def encode_map(ext: Mapping[str, str]) -> bytes:
    """The fields' bytes, without the length in front."""
    parts = []
    for key, value in ext.items():
        key_bytes, value_bytes = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        parts.append(_key_head.pack(len(key_bytes)) + key_bytes + _value_head.pack(len(value_bytes)) + value_bytes)
    return b"".join(parts)


def _encode(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, ext: dict[str, str] | None
) -> bytes:
    remark_bytes = remark.encode("utf-8", "replace") if remark else b""
    fields = encode_map(ext) if ext else b""
    code = (code & 0xFFFF) - ((code & 0x8000) << 1)
    head = HEAD.pack(code, language, version, opaque, flag, len(remark_bytes))
    return head + remark_bytes + _value_head.pack(len(fields)) + fields
