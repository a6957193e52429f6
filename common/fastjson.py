"""JSON as RocketMQ's peers write it: fastjson's dialect in, plain JSON out.

fastjson writes maps with bare numeric keys (`{0:5}`), maps whose keys are objects (`{{"topic":"T"}:5}`) and references
(`{"$ref":"$.a"}`), and reads trailing commas and single quotes. `loads` takes all of that: an object key becomes its
JSON text (compact, names as they came; `loads` it again to look inside), a reference becomes the value it points at.
Plain JSON goes through msgspec (30 times faster) and only what msgspec refuses through the reader below.

The reader takes 2 µs a value, so a peer must not be able to choose how many values it reads: input from a peer is read
with a budget (`max_values`), which limits the length of its text too: 15 MB that are no UTF-8 took 120 ms to decode.
Long plain JSON has one too, 16 times as large: millions of values in a shape that nobody wants took a second and a
gigabyte. A reference costs what it points at, because writing or converting the value costs
as much for every copy. Text is always Unicode: a lone surrogate, which JSON can spell and UTF-8 cannot, becomes U+FFFD,
so whatever was read can be written.

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
# Costs in the budget: an escape takes most of the time of a value, text a peer makes us copy 1 ns a character.
_VALUE, _ESCAPE, _CHARACTERS_A_VALUE = 4, 3, 2_000
# Plain JSON of more characters than this may have so many times the values of a budget; a shorter one takes 10 ms.
_LONG_PLAIN, _PLAIN_VALUES = 128 << 10, 16
# Characters of a text for each value of its budget, blanks and broken UTF-8 too: 1 MiB takes 8 ms.
_LENGTH_A_VALUE = 132
# What the references of a file may expand to. No table of RocketMQ's has a reference.
_REFERENCES_IN_FILES = 1_000_000
_blank = re.compile(r"[ \t\r\n,\ufeff]*").match  # fastjson skips stray commas too
_bare_word = re.compile(r"[-+\w.$]+").match
_string_part = re.compile(r"[^\\\"]*").match
_hex_digits = re.compile(r"[0-9a-fA-F]+").match
_single_part = re.compile(r"[^\\']*").match
_path_part = re.compile(r"\.([^.\[]+)|\[(\d+)\]").finditer
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b", "0": "\0"}


def as_text(value: Any) -> str:
    """What msgspec cannot encode, as it can: a str of another type. A user's topic may be one, such as numpy.str_."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


dumps = msgspec.json.Encoder(enc_hook=as_text).encode
"""Compact JSON, keys quoted, as every peer reads it. `msgspec.Raw` goes in as it is."""
_decode = msgspec.json.Decoder().decode


class InvalidJson(RocketletError):
    """Not JSON, not even in fastjson's dialect; the text names the position."""


def loads(text: str | bytes, *, max_values: int | None = None, references: bool = True) -> Any:
    """The value of a text. Raises InvalidJson.

    `max_values`: how many values the tolerant reader may read and expand before it gives up; of long plain JSON, 16
    times as many.
    `references`: whether `$ref` stands for another value; where not, it is a key like any other.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if max_values is not None and len(text) > _LONG_PLAIN and _most_values(text) > max_values * _PLAIN_VALUES:
        raise InvalidJson(f"not JSON that can be used: more than {max_values * _PLAIN_VALUES} values")
    if not references or b'"$ref"' not in text:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # one of fastjson's oddities, or really broken: the reader below decides
    if max_values is not None and len(text) > max_values * _LENGTH_A_VALUE:
        raise InvalidJson(f"not plain JSON, and longer than {max_values * _LENGTH_A_VALUE} bytes")
    reader = _Reader(text.decode("utf-8", "replace"), max_values)
    value = reader.whole()
    if not (references and reader.has_references):
        return value
    return _References(value, _REFERENCES_IN_FILES if max_values is None else reader.budget // _VALUE).resolved()


def dumps_object_keys(pairs: Iterable[tuple[Any, Any]]) -> msgspec.Raw:
    """A map whose keys are objects, `{{...}:5,{...}:7}`: not JSON, but the one form all peers read.

    It is a `Raw`, so that it can stand inside what `dumps` writes.
    """
    return msgspec.Raw(b"{%b}" % b",".join([b"%b:%b" % (dumps(key), dumps(value)) for key, value in pairs]))


def _most_values(text: bytes) -> int:
    """A bound on the values in a text, in a millisecond a megabyte: before each is a comma or the start of a list or
    map."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


class _Reader:
    """Recursive descent over one text; `at` is the next character, `budget` what it may still spend."""

    def __init__(self, text: str, max_values: int | None) -> None:
        self.text = text
        self.at = 0
        self.max_values = max_values
        self.budget = len(text) * _VALUE if max_values is None else max_values * _VALUE
        self.has_references = False
        self._in_key = False

    def whole(self) -> Any:
        value = self._value(0)
        self._skip()
        if self.at < len(self.text):
            raise self._broken("text after the end of the value")
        return value

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self._broken(f"nested deeper than {_MAX_DEPTH}")
        self._spend(_VALUE)
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
        members: dict[str, Any] = {}
        while (mark := self._skip()) != "}":
            key = self._key(mark, depth)
            if self._skip() != ":":
                raise self._broken("expected ':' after a key")
            self.at += 1
            members[key] = self._value(depth + 1)
        self.at += 1
        if "$ref" in members:
            self.has_references = True
        return members

    def _key(self, mark: str, depth: int) -> str:
        if mark in ("{", "["):
            if self._in_key:  # each level would escape the quotes of the one inside again, and double its length
                raise self._broken("an object key inside an object key")
            self._in_key = True
            value = self._value(depth + 1)
            self._in_key = False
            return dumps(value).decode()
        if mark in ('"', "'"):
            return self._string(mark)
        word = _bare_word(self.text, self.at)
        if word is None:
            raise self._broken("expected a key")
        self.at = word.end()
        return word.group()

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        items = []
        while self._skip() != "]":
            items.append(self._value(depth + 1))
        self.at += 1
        return items

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
                raise self._broken("an unterminated string")
            if self.text[self.at] == quote:
                self.at += 1
                return "".join(parts)
            self._spend(_ESCAPE)
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
        return "\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)

    def _hex(self, at: int, digits: int) -> int:
        match = _hex_digits(self.text, at, at + digits)
        if match is None or match.end() != at + digits:
            raise self._broken("a broken escape")
        return int(match.group(), 16)

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

    def _spend(self, cost: int) -> None:
        self.budget -= cost
        if self.budget < 0 and self.max_values is not None:
            raise self._broken(f"more than {self.max_values} values that are no plain JSON")

    def _broken(self, what: str) -> InvalidJson:
        near = self.text[max(0, self.at - 20) : self.at + 20]
        return InvalidJson(f"not JSON at character {self.at}: {what}, near {near!r}")


class _References:
    """Replaces the references of one value, at the cost of what they point at."""

    def __init__(self, root: Any, budget: int) -> None:
        self._root = root
        self._budget = budget
        self._costs: dict[int, int] = {}  # by id; the root keeps everything alive

    def resolved(self) -> Any:
        """Raises InvalidJson. What cannot be found, or points upwards, becomes None."""
        return self._resolve(self._root)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$ref"}:
                target = _follow(value["$ref"], self._root)
                self._budget -= self._cost(target)
                if self._budget < 0:
                    raise InvalidJson("not JSON that can be used: its references stand for too many values")
                return target
            return {key: self._resolve(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner) for inner in value]
        return value

    def _cost(self, value: Any) -> int:
        """How many values there are in it, references not followed."""
        if isinstance(value, str):
            return 1 + len(value) // _CHARACTERS_A_VALUE
        if not isinstance(value, dict | list):
            return 1
        cost = self._costs.get(id(value))
        if cost is None:
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            cost = self._costs[id(value)] = 1 + sum(map(self._cost, inner))
        return cost


def _follow(path: Any, root: Any) -> Any:
    if not isinstance(path, str) or not path.startswith("$."):
        return None  # "$", "@" and ".." stand for a parent: a cycle, which no body of RocketMQ has
    target = root
    for part in _path_part(path):
        name, number = part.groups()
        try:
            target = target[int(number)] if name is None else target[name]
        except (KeyError, IndexError, TypeError):
            return None
    return target
