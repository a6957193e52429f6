"""gRPC on HTTP/2: messages in the data, statuses and deadlines in the headers. Pure.

A message is preceded by five bytes: whether it is compressed (0: we neither send nor accept compressed messages) and
its length. Header blocks are written here once, without compression state: an answer's headers cost a copy of 20 bytes.

Java: io.grpc.internal.MessageDeframer, GrpcUtil
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from urllib.parse import quote

MESSAGE_HEAD = Struct(">BI")
MESSAGE_HEAD_SIZE = MESSAGE_HEAD.size


class GrpcStatus(IntEnum):
    """How a call ended at gRPC's level, below RocketMQ's statuses."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is not added to the table. Requires: both are shorter than 127 bytes."""
    return b"\x00%c%b%c%b" % (len(name), name, len(value), value)


_STATUS_200 = b"\x88"  # of the static table
_CONTENT_TYPE = b"\x0f\x10"  # the name of the static table, 31
ANSWER_HEADERS = _STATUS_200 + _CONTENT_TYPE + b"\x10application/grpc"
OK_TRAILERS = literal(b"grpc-status", b"0")
UNSUPPORTED_MEDIA_TYPE = literal(b":status", b"415")
NOT_FOUND = b"\x8d"


def trailers(status: GrpcStatus, message: str = "") -> bytes:
    """The end of a call. The message is truncated to fit a header with a one-byte length."""
    if status is GrpcStatus.OK:
        return OK_TRAILERS
    block = literal(b"grpc-status", b"%d" % status)
    if message:
        encoded = quote(message, safe=" !\"#$&'()*+,/:;<=>?@[]^_`{|}~").encode()[:120]
        block += literal(b"grpc-message", encoded[: encoded.rfind(b"%")] if b"%" in encoded[-2:] else encoded)
    return block


def framed(message: bytes) -> bytes:
    """A message with its length prefix."""
    return MESSAGE_HEAD.pack(0, len(message)) + message


_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def timeout(value: bytes | None) -> float | None:
    """The seconds of a `grpc-timeout`; None if it is missing or unreadable."""
    if not value or not value[:-1].isdigit() or len(value) > 20:
        return None
    unit = _UNITS.get(value[-1:])
    return None if unit is None else int(value[:-1]) * unit
