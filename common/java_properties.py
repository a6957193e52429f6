"""java.util.Properties text: read, written, and edited in place.

What a RocketMQ configuration file is, and the body of the requests that show and change settings (25, 26, 318, 319).
The rules, as Java's reader has them:

- a logical line is one natural line, or several joined by an odd number of backslashes at the end; blanks that begin a
  continuation are dropped. Blank lines and lines whose first sign is ``#`` or ``!`` are skipped; what continues a
  line is never a comment. (One deviation: of a lone backslash at the end Java makes an entry without name; we do not.)
- the key ends at the first unescaped ``=``, ``:`` or blank; blanks around it, and one ``=`` or ``:``, are dropped.
- ``\\t \\n \\r \\f \\uXXXX`` are what they are in Java, any other escaped sign stands for itself.
- of two lines with one key the last one counts (`as_dict`).

One rule is our own: bytes are read as UTF-8 where they are valid UTF-8, and as ISO-8859-1, Java's only choice, where
not.

Java: java.util.Properties, common/MixAll.java (string2Properties, properties2String)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rocketlet.common.errors import RocketletError

_BLANKS = " \t\f"
_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class PropertiesError(RocketletError):
    """The text breaks a rule that Java's reader enforces too: a ``\\u`` without four hex digits after it."""


class Entry(NamedTuple):
    """One logical line with an entry; `line` and `end` count natural lines from 1, `end` is the last of them."""

    key: str
    value: str
    line: int
    end: int


def decode(data: bytes) -> str:
    """Requires: a whole file or body. A byte order mark in front, as Windows editors leave it, is dropped."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str) -> list[Entry]:
    """All entries in order, doubles included, so that a caller can name the line of each."""
    return [
        Entry(_unescape(key, start), _unescape(value, start), start, end)
        for start, end, line in _logical_lines(text)
        for key, value in [_split(line)]
    ]


def as_dict(text: str) -> dict[str, str]:
    """What Java's `Properties` would hold after reading this text."""
    return {entry.key: entry.value for entry in parse(text)}


def format_entry(key: str, value: str) -> str:
    """One line (without its end) that reads back as this pair. Escapes only what must be escaped, since people read
    it."""
    return f"{_escape(key, '=: #!')}={_escape_value(value)}"


def format_plain(pairs: Mapping[str, str]) -> str:
    """The body of 26 and 319 as RocketMQ writes it: no escapes, so a value's backslash or line end does not survive."""
    return "".join(f"{key}={value}\n" for key, value in pairs.items())


def edit(text: str, updates: Mapping[str, str]) -> str:
    """The text with only these keys changed: comments, order and every other line stay as they were.

    A key that occurs several times is changed at its last line, the one that counts; a new key goes to the end.
    """
    last_of = {entry.key: entry for entry in parse(text) if entry.key in updates}
    lines = _END_OF_LINE.split(text)
    if lines[-1] == "":
        lines.pop()
    for entry in sorted(last_of.values(), key=lambda entry: -entry.line):
        lines[entry.line - 1 : entry.end] = [format_entry(entry.key, updates[entry.key])]
    lines += [format_entry(key, value) for key, value in updates.items() if key not in last_of]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Number of the first and last natural line, and the joined text, of each logical line that is not skipped."""
    joined, start = "", 0
    for number, natural in enumerate(_END_OF_LINE.split(text), 1):
        stripped = natural.lstrip(_BLANKS)
        if joined == "":
            if stripped == "" or stripped[0] in "#!":
                continue
            start = number
        if _continues(stripped):
            joined += stripped[:-1]
            continue
        yield start, number, joined + stripped
        joined = ""
    if joined:  # a backslash at the very end of the text joins nothing
        yield start, number, joined


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value, both still escaped."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, value = line[:at], line[at:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return key, value


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign != "\\" or at == len(text):
            parts.append(sign)
            continue
        escaped = text[at]
        at += 1
        if escaped != "u":
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[at : at + 4]
        at += 4
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise PropertiesError(
                f"line {line}: \\u{digits} lacks its four hex digits; a backslash itself is written \\\\"
            )
        parts.append(chr(int(digits, 16)))
    # Java counts in UTF-16: a sign beyond U+FFFF is written as two escapes, which are one sign here.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, also: str) -> str:
    return "".join(_escape_sign(sign, also) for sign in text)


def _escape_sign(sign: str, extra: str) -> str:
    if sign in _WRITTEN:
        return _WRITTEN[sign]
    if sign in extra:
        return f"\\{sign}"
    if sign.isascii():
        return sign
    utf_16 = sign.encode("utf-16-be", "surrogatepass")  # so that Java, which reads ISO-8859-1, reads the same
    return "".join(f"\\u{utf_16[at : at + 2].hex()}" for at in range(0, len(utf_16), 2))


def _escape_value(value: str) -> str:
    # A value may hold anything; only blanks at its beginning would be taken for those around the "=".
    return f"\\{value[0]}{_escape(value[1:], '')}" if value[:1] == " " else _escape(value, "")
