"""Compression of message bodies.

Bodies over a threshold leave as zlib with flag 0x1 alone, which every RocketMQ client of any age and language reads.
Received bodies may also be LZ4 frames or ZSTD (Java from 4.9.4 on), if their packages are installed. The size of an
inflated body is limited, because a few kilobytes can inflate to gigabytes.

Java: common/compression/, client/impl/producer/DefaultMQProducerImpl.java#tryToCompressMessage
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rocketlet.client.errors import ClientError
from rocketlet.common import message_flags as flags

MAX_INFLATED = 64 << 20  # bytes; sixteen times the largest body that a broker takes by default


class CannotInflate(ClientError):
    """A body's compression is unknown, broken, or inflates beyond the limit."""


def compress(body: bytes, level: int = 5) -> bytes:
    """The body as zlib. RocketMQ's level is 5."""
    return zlib.compress(body, level)


def inflate(body: bytes, sys_flag: int, limit: int = MAX_INFLATED) -> bytes:
    """The body as it was before compression. Raises CannotInflate.

    The flag alone cannot be trusted for LZ4 and ZSTD: Java 4.9.8's `setCompressType` changes the flag and not the
    compressor. Both formats and zlib begin with signs of their own, so the first bytes decide.
    """
    if not sys_flag & flags.COMPRESSED:
        return body
    for sign, unpack in _BY_SIGN:
        if body.startswith(sign):
            return unpack(body, limit)
    return _inflate_zlib(body, limit)


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        inflated = unpacker.decompress(body, limit)
    except zlib.error as error:
        raise CannotInflate(f"a body of {len(body)} bytes is flagged as compressed but is not zlib: {error}") from error
    if unpacker.unconsumed_tail:
        raise _too_large(body, limit)
    return inflated


def _inflate_lz4(body: bytes, limit: int) -> bytes:
    unpacker = _optional("lz4.frame", "LZ4", "lz4").LZ4FrameDecompressor()
    try:
        inflated: bytes = unpacker.decompress(body, max_length=limit)
    except RuntimeError as error:
        raise CannotInflate(f"a body of {len(body)} bytes is a broken LZ4 frame: {error}") from error
    if not unpacker.eof:
        raise _too_large(body, limit)
    return inflated


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    zstandard = _optional("zstandard", "ZSTD", "zstandard")
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            inflated: bytes = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise CannotInflate(f"a body of {len(body)} bytes is broken ZSTD: {error}") from error
    if len(inflated) > limit:
        raise _too_large(body, limit)
    return inflated


_BY_SIGN: list[tuple[bytes, Callable[[bytes, int], bytes]]] = [
    (b"\x04\x22\x4d\x18", _inflate_lz4),
    (b"\x28\xb5\x2f\xfd", _inflate_zstd),
]


def _too_large(body: bytes, limit: int) -> CannotInflate:
    return CannotInflate(
        f"a body of {len(body)} bytes inflates to more than {limit}",
        advice="if it is meant to, raise max_inflated_size",
    )


def _optional(module: str, kind: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise CannotInflate(
            f"a body is compressed by {kind}", advice=f"install the package {package} to read it"
        ) from None
