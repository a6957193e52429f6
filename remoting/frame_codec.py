"""Frames: cutting them out of received bytes, and writing them. No I/O.

    4  LEN    bytes that follow               \\  at most frame_limit - 4
    1  header type                            |
    3  HLEN   bytes of the header             |  HLEN + 4 <= LEN
    n  header                                 |
    m  body                                   /

There is no magic number and no checksum, so only the two lengths distinguish a frame from noise; both are checked as
soon as their eight bytes have arrived, before anything is buffered for the rest.

`cut` is the one place that does this. `FrameDecoder` around it returns complete commands, for clients, tools and tests;
a server's turn goes from `cut` to typed requests (`request_reader.py`).

Java: remoting/netty/NettyDecoder.java, NettyEncoder.java, remoting/protocol/RemotingCommand.java
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketlet.remoting import header_json, header_rocketmq
from rocketlet.remoting.command import VERSION, Command, HeaderType
from rocketlet.remoting.errors import FrameError
from rocketlet.remoting.protocol.header import Header, to_ext

FRAME_LIMIT = 16_777_216  # com.rocketmq.remoting.frameMaxLength: the whole frame with its first four bytes
HEADER_LIMIT = (1 << 24) - 1  # HLEN has three bytes
# Of a request. The longest that a RocketMQ client sends is a message with 32 KiB of properties, every byte escaped in
# JSON: 192 KiB. Answers may be longer: the ids of a batch are in the header.
REQUEST_HEADER_LIMIT = 256 << 10

Buffer = bytes | bytearray | memoryview

_head = struct.Struct(">II")
_unpack = _head.unpack_from
pack_head = _head.pack


class Cut(NamedTuple):
    """The contents of a buffer: frames as (header type, begin of header, begin of body, end), where the rest begins,
    how many bytes the rest needs to be a frame (8 while unknown), and what is wrong after the frames."""

    frames: list[tuple[int, int, int, int]]
    rest: int
    need: int
    error: FrameError | None


def cut(data: Buffer, frame_limit: int = FRAME_LIMIT, header_limit: int = HEADER_LIMIT) -> Cut:
    """All complete frames in the buffer, including those before a broken one."""
    frames: list[tuple[int, int, int, int]] = []
    begin, end = 0, len(data)
    longest = frame_limit - 4
    while end - begin >= 8:
        length, word = _unpack(data, begin)
        header = begin + 8
        header_length = word & 0xFFFFFF
        body = header + header_length
        stop = begin + 4 + length
        if length > longest or body > stop or header_length > header_limit:
            return Cut(frames, begin, 8, _frame_error(length, header_length, frame_limit, header_limit))
        if stop > end:
            return Cut(frames, begin, stop - begin, None)
        frames.append((word >> 24, header, body, stop))
        begin = stop
    return Cut(frames, begin, 8, None)


def _frame_error(length: int, header_length: int, frame_limit: int, header_limit: int) -> FrameError:
    if length > frame_limit - 4:
        return FrameError(f"a frame of {length + 4} bytes, where frameMaxLength allows {frame_limit}")
    if header_length > header_limit:
        return FrameError(f"a frame with a header of {header_length} bytes, where {header_limit} are the limit")
    return FrameError(f"a frame whose header of {header_length} bytes is longer than its {length} bytes allow")


class ReceiveBuffer:
    """Keeps the beginning of a frame until the rest has arrived, without joining again at every chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._need = 0

    def __len__(self) -> int:
        return self._size

    def feed(self, chunk: bytes) -> bytes | None:
        """Add a chunk. Returns everything received and not handled yet; None while that is known to be less than a
        frame."""
        if not self._parts:
            return chunk
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size < self._need:
            return None
        data = b"".join(self._parts)
        self._parts, self._size = [], 0
        return data

    def keep(self, data: bytes, rest: int, need: int) -> None:
        """Put back the incomplete rest of `data`. Requires: feed has just returned `data`."""
        if rest < len(data):
            self._parts, self._size, self._need = [data[rest:]], len(data) - rest, need


class FrameDecoder:
    """Bytes in, commands out. After a FrameError the stream cannot be read any further."""

    def __init__(self, frame_limit: int = FRAME_LIMIT) -> None:
        self._frame_limit = frame_limit
        self._buffer = ReceiveBuffer()

    def feed(self, chunk: bytes) -> list[Command]:
        """The commands that are complete now. Raises FrameError once those before the broken one have been returned."""
        data = self._buffer.feed(bytes(chunk))
        if data is None:
            return []
        result = cut(data, self._frame_limit)
        commands = [
            decode(header_type, data[header:body], data[body:end]) for header_type, header, body, end in result.frames
        ]
        if result.error is not None and not commands:
            raise result.error
        self._buffer.keep(data, result.rest, result.need)
        return commands


def decode(header_type: int, header: bytes, body: bytes | memoryview) -> Command:
    """One frame's command. Raises FrameError, ChecksumError."""
    if header_type == HeaderType.MSGPACK:
        from rocketlet.remoting import header_msgpack  # crc32c takes 28 ms to import, and only our own peers need it

        return header_msgpack.decode(header, body)
    command = decode_header(header_type, header)
    command.body = bytes(body)
    return command


def decode_header(header_type: int, header: bytes) -> Command:
    """The command without its body (of a msgpack header: without the check). Raises FrameError."""
    if header_type == HeaderType.JSON:
        return header_json.decode(header)
    if header_type == HeaderType.ROCKETMQ:
        return header_rocketmq.decode(header)
    if header_type == HeaderType.MSGPACK:
        from rocketlet.remoting import header_msgpack

        return header_msgpack.decode(header, None)
    raise FrameError(f"a frame with header type {header_type}")


def ext_of(header_type: int, header: bytes) -> dict[str, str]:
    """The fields of a header, as by `decode`, without the rest of the command. Raises FrameError."""
    if header_type == HeaderType.JSON:
        ext = header_json.decode_ext(header)
        if ext is not None:
            return ext
    elif header_type == HeaderType.ROCKETMQ:
        return header_rocketmq.decode_ext(header)
    return decode_header(header_type, header).ext or {}


def encode(command: Command) -> bytes:
    """The complete frame. Raises FrameError if the receiver would refuse its length."""
    if command.header_type == HeaderType.JSON:
        header = header_json.encode(command)
    elif command.header_type == HeaderType.ROCKETMQ:
        header = header_rocketmq.encode(command)
    else:
        from rocketlet.remoting import header_msgpack

        header = header_msgpack.encode(command)
    head = _frame_head(command.header_type, header, len(command.body))
    return b"".join((head, header, command.body))


def encode_answer(
    header_type: int,
    opaque: int,
    code: int,
    header: Header | Mapping[str, str] | None,
    body: Buffer | Sequence[Buffer],
    remark: str | None,
) -> list[Buffer]:
    """The buffers of an answer, in the type of its request. A body in several buffers is not joined."""
    ext = to_ext(header) if isinstance(header, Header) else None if header is None else dict(header)
    parts: list[Buffer] = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
    size = sum(map(len, parts))
    if header_type == HeaderType.JSON:
        raw = header_json.encode_answer(code, opaque, VERSION, remark, ext)
    elif header_type == HeaderType.ROCKETMQ:
        raw = header_rocketmq.encode_answer(code, opaque, VERSION, remark, ext)
    else:
        from rocketlet.remoting import header_msgpack

        raw = header_msgpack.encode_answer(code, opaque, VERSION, remark, ext, header_msgpack.checksum_of(parts))
    return [_frame_head(header_type, raw, size) + raw, *parts] if size else [_frame_head(header_type, raw, 0) + raw]


def _frame_head(header_type: int, header: bytes, body_size: int) -> bytes:
    length = 4 + len(header) + body_size
    if length > FRAME_LIMIT - 4 or len(header) > HEADER_LIMIT:
        raise FrameError(f"a frame of {length + 4} bytes to send, where receivers take {FRAME_LIMIT}")
    return pack_head(length, header_type << 24 | len(header))
