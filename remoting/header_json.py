"""The JSON header (type 0): Java's default, and the only one that C++ and Node clients can read.

    {"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON",...}

Written so that every client can read it: no blanks, None left out, values of extFields always text (the Go client
accepts nothing else). Read in one pass by msgspec straight into typed structs; what msgspec refuses (numbers as floats
or words, values of extFields that are numbers or objects, unquoted keys) goes through the lenient reader, at ten times
the cost, and only up to ODD_VALUES. What fastjson refuses too is a FrameError, and so is what no client writes:
references are not resolved.

Java: remoting/protocol/RemotingSerializable.java, RemotingCommand.java (header codec)
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from rocketlet.common import fastjson
from rocketlet.remoting.command import Command, HeaderType, language_of
from rocketlet.remoting.errors import FrameError
from rocketlet.remoting.protocol.header import UNDECODABLE, Header, Int, text_of


class Envelope(Struct, gc=False):
    """The fields every header has. Subclasses add `header`, typed, under the name extFields."""

    code: Int = 0
    opaque: Int = 0
    flag: Int = 0
    version: Int = 0
    language: str | int | None = None
    remark: str | None = None

    @property
    def header(self) -> Header | None:
        """None, if no type was requested."""
        return None


class _AnyEnvelope(Envelope, gc=False):
    extFields: dict[str, str] | None = None


class _Ext(Struct, gc=False):
    """Only the fields. The rest of the header is checked to be JSON and skipped."""

    extFields: dict[str, str] | None = None


class _Written(Struct, gc=False, omit_defaults=True):
    """The written form: None is left out, fields without a default are always present."""

    code: int
    flag: int
    language: str
    opaque: int
    version: int
    serializeTypeCurrentRPC: str
    extFields: dict[str, str] | None = None
    remark: str | None = None


# Values that the lenient reader reads of one header, 2 µs each. The largest existing header has 30.
ODD_VALUES = 2_000

_decode = msgspec.json.Decoder(_AnyEnvelope, strict=False).decode
_decode_ext = msgspec.json.Decoder(_Ext).decode


@cache  # creating one takes 0.5 ms, and every server has 80
def typed_decoder(header: type[Header] | None) -> msgspec.json.Decoder[Any]:
    """A decoder of complete headers with extFields of this type; without a type they are skipped."""
    if header is None:
        return msgspec.json.Decoder(Envelope, strict=False)
    fields = [("header", header, msgspec.field(name="extFields"))]
    return msgspec.json.Decoder(
        msgspec.defstruct(f"{header.__name__}Envelope", fields, bases=(Envelope,), kw_only=True, gc=False), strict=False
    )


PREFIX = 12  # bytes that distinguish all codes of two and three digits


def compact_prefix(code: int) -> bytes:
    """The first bytes of a header with this code, if `code` is its first key and there are no blanks, as from most
    clients."""
    return (b'{"code":%d,"' % code)[:PREFIX]


def beginnings(code: int) -> tuple[bytes, bytes]:
    """The same up to the first comma; some encoders, including Python's, put a blank after a colon."""
    return b'{"code":%d' % code, b'{"code": %d' % code


def decode(raw: bytes) -> Command:
    """Any header. Raises FrameError."""
    try:
        header = _decode(raw)
    except UNDECODABLE:
        return _decode_odd(raw)
    return Command(
        header.code,
        header.opaque,
        header.flag,
        language_of(header.language),
        header.version,
        header.remark,
        header.extFields,
        b"",
        HeaderType.JSON,
    )


def decode_ext(raw: bytes) -> dict[str, str] | None:
    """The fields, as by `decode`, at two thirds of its cost; None if only the lenient reader can tell."""
    try:
        return _decode_ext(raw).extFields or {}
    except UNDECODABLE:
        return None


def encode(command: Command) -> bytes:
    """The header's bytes."""
    return fastjson.dumps(
        _Written(
            int(command.code),
            command.flag,
            command.language.name,
            command.opaque,
            command.version,
            "JSON",
            command.ext,
            command.remark,
        )
    )


def encode_answer(code: int, opaque: int, version: int, remark: str | None, ext: dict[str, str] | None) -> bytes:
    """An answer's header without a Command in between. Its language is JAVA: some old clients know few others."""
    return fastjson.dumps(_Written(code, 1, "JAVA", opaque, version, "JSON", ext, remark))


def _decode_odd(raw: bytes) -> Command:
    """As fastjson reads it."""
    try:
        header = fastjson.loads(raw, max_values=ODD_VALUES, references=False)
    except fastjson.InvalidJson as error:
        raise FrameError(f"an unreadable JSON header: {error}") from None
    if not isinstance(header, dict):
        raise FrameError(f"a JSON header that is no object but {type(header).__name__}")
    language, remark, ext = header.get("language"), header.get("remark"), header.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise FrameError(f"a JSON header whose extFields are {type(ext).__name__}")
    return Command(
        _number(header, "code"),
        _number(header, "opaque"),
        _number(header, "flag"),
        language_of(language if isinstance(language, (str, int)) else None),
        _number(header, "version"),
        None if remark is None else _text(remark),
        None if ext is None else {key: _text(value) for key, value in ext.items() if value is not None},
        b"",
        HeaderType.JSON,
    )


def _number(header: dict[str, Any], name: str) -> int:
    value = header.get(name)
    if value is None or value == "":
        return 0
    try:
        number = int(float(value)) if isinstance(value, str) and "." in value else int(value)
    except (ValueError, TypeError, OverflowError):
        raise FrameError(f"a JSON header with {name}={str(value)[:100]!r}") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise FrameError(f"a JSON header with {name}={value!r:.100}, which is no 32-bit number")
    return number


def _text(value: Any) -> str:
    """A value of extFields as Java's text for it: C++ and Node clients send numbers, booleans and objects."""
    return fastjson.dumps(value).decode() if isinstance(value, (dict, list)) else text_of(value)
