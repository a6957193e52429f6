"""JSON as RocketMQ's peers write it: fastjson's dialect in, plain JSON out.

fastjson writes maps with bare numeric keys (`{0:5}`), maps whose keys are objects (`{{"topic":"T"}:5}`) and references
(`{"$ref":"$.a"}`), and reads trailing commas and single quotes. `loads` takes all of that: an object key becomes its
JSON text (compact, names as they came; `loads` it again to look inside), a reference becomes the value it points at.
Plain JSON goes through msgspec (30 times faster) and only what that refuses through the reader below.

Java: com.alibaba.fastjson 1.2.83 as common/protocol/RemotingSerializable.java uses it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from rocketlet.common.errors import RocketletError

_MAX_DEPTH = 200
_blank = re.compile(r"[ \t\r\n,\ufeff]*").match  # fastjson skips stray commas too
_bare_word = re.compile(r"[-+\w.$]+").match
_string_part = re.compile(r"[^\\\"]*").match
_hex_digits = re.compile(r"[0-9a-fA-F]+").match
_single_part = re.compile(r"[^\\']*").match
_path_part = re.compile(r"\.([^.\[]+)|\[(\d+)\]").finditer
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b", "0": "\0"}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class InvalidJson(RocketletError):
    """Not JSON, not even in fastjson's dialect; the text names the position."""


def loads(text: str | bytes) -> Any:
    """The value of a text. Raises InvalidJson."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if b'"$ref"' not in text:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # one of fastjson's oddities, or truly broken: the reader below tells
    reader = _Reader(text.decode("utf-8", "replace"))
    value = reader.whole()
    return _resolve(value, value) if reader.has_references else value


def dumps(value: Any) -> bytes:
    """Compact JSON, keys quoted, as every peer reads it. `msgspec.Raw` goes in as it is."""
    return _encode(value)


def dumps_object_keys(pairs: Iterable[tuple[Any, Any]]) -> msgspec.Raw:
    """A map whose keys are objects, `{{...}:5,{...}:7}`: not JSON, but the one form all peers read.

    It is a `Raw`, so that it can stand inside what `dumps` writes.
    """
    return msgspec.Raw(b"{%b}" % b",".join([b"%b:%b" % (_encode(key), _encode(value)) for key, value in pairs]))


class _Reader:
    """Recursive descent over one text; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.has_references = False

    def whole(self) -> Any:
        value = self._value(0)
        self._skip()
        if self.at < len(self.text):
            raise self._broken("text after the end of the value")
        return value

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self._broken(f"nested deeper than {_MAX_DEPTH}")
        mark = self._skip()
        if mark == "{":
            return self._object(depth)
        if mark == "[":
            return self._array(depth)
        if mark in ('"', "'"):
            return self._string(mark)
        return self._word()

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        while (mark := self._skip()) != "}":
            key = self._key(mark, depth)
            if self._skip() != ":":
                raise self._broken("expected ':' behind a key")
            self.at += 1
            found[key] = self._value(depth + 1)
        self.at += 1
        if "$ref" in found:
            self.has_references = True
        return found

    def _key(self, mark: str, depth: int) -> str:
        if mark in ("{", "["):
            return _encode(self._value(depth + 1)).decode()
        if mark in ('"', "'"):
            return self._string(mark)
        word = _bare_word(self.text, self.at)
        if word is None:
            raise self._broken("expected a key")
        self.at = word.end()
        return word.group()

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        found = []
        while self._skip() != "]":
            found.append(self._value(depth + 1))
        self.at += 1
        return found

    def _string(self, quote: str) -> str:
        part_of = _string_part if quote == '"' else _single_part
        parts = []
        self.at += 1
        while True:
            part = part_of(self.text, self.at)
            assert part is not None  # it matches the empty text
            parts.append(part.group())
            self.at = part.end()
            if self.at >= len(self.text):
                raise self._broken("a string without end")
            if self.text[self.at] == quote:
                self.at += 1
                return "".join(parts)
            parts.append(self._escape())

    def _escape(self) -> str:
        code = self.text[self.at + 1 : self.at + 2]
        digits = {"u": 4, "x": 2}.get(code)
        if digits is None:
            self.at += 2
            return _ESCAPES.get(code, code)
        unit = self._hex(self.at + 2, digits)
        self.at += 2 + digits
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.at):
            second = self._hex(self.at + 2, 4)
            if 0xDC00 <= second < 0xE000:
                self.at += 6
                unit = 0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00)
        return chr(unit)

    def _hex(self, at: int, digits: int) -> int:
        found = _hex_digits(self.text, at, at + digits)
        if found is None or found.end() != at + digits:
            raise self._broken("a broken escape")
        return int(found.group(), 16)

    def _word(self) -> Any:
        word = _bare_word(self.text, self.at)
        if word is None:
            raise self._broken("expected a value")
        text = word.group()
        if text in _WORDS:
            value = _WORDS[text]
        else:
            try:
                value = json.loads(text.removeprefix("+").rstrip("LlDdFf"))
            except ValueError:
                raise self._broken(f"{text[:20]!r} is no value") from None
        self.at = word.end()
        return value

    def _skip(self) -> str:
        """Past blanks and commas; the character there, or '' at the end."""
        blank = _blank(self.text, self.at)
        assert blank is not None  # it matches the empty text
        self.at = blank.end()
        return self.text[self.at : self.at + 1]

    def _broken(self, what: str) -> InvalidJson:
        near = self.text[max(0, self.at - 20) : self.at + 20]
        return InvalidJson(f"not JSON at character {self.at}: {what}, near {near!r}")


def _resolve(value: Any, root: Any) -> Any:
    """The value with its references replaced. What cannot be found, or points upwards, becomes None."""
    if isinstance(value, dict):
        if set(value) == {"$ref"}:
            return _follow(value["$ref"], root)
        return {key: _resolve(inner, root) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolve(inner, root) for inner in value]
    return value


def _follow(path: Any, root: Any) -> Any:
    if not isinstance(path, str) or not path.startswith("$."):
        return None  # "$", "@" and ".." stand for a parent: a cycle, which no body of RocketMQ has
    found = root
    for part in _path_part(path):
        name, number = part.groups()
        try:
            found = found[int(number)] if name is None else found[name]
        except (KeyError, IndexError, TypeError):
            return None
    return found
