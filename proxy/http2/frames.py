"""HTTP/2 frames: a head of nine bytes, then the payload.

    0  3  length of the payload        4  1  flags
    3  1  type                         5  4  stream, whose highest bit is reserved

Numbers are RFC 9113's. DO NOT CHANGE.

Java: io.netty.handler.codec.http2.Http2CodecUtil
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE = 9
LEAST_MAX_FRAME = 1 << 14
"""Of a payload, where a peer has not said that it takes more."""
LARGEST_WINDOW = (1 << 31) - 1
INITIAL_WINDOW = 65_535

DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

_head = Struct(">IBI")  # the length's three bytes and the type read as one number
HEAD = Struct(">HBBBI")
LONG = Struct(">I")
SETTING = Struct(">HI")


class ErrorCode(IntEnum):
    """Why a stream was reset or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The head of a payload of that size."""
    return _head.pack(size << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A complete frame."""
    return _head.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(number, value) for number, value in values.items()))


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, LONG.pack(size))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, LONG.pack(code))


def goaway(last_stream: int, code: int, reason: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, LONG.pack(last_stream) + LONG.pack(code) + reason.encode()[:200])
