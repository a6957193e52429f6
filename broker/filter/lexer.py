"""Splits SQL92 selectors into tokens, one at a time; errors point at a character.

Tokens are read only on demand: whatever follows the token after a complete expression is never read,
so `a b # c` is fine (it means `a`) while `a # c` is not. Keywords are recognised in any case, property names are not.
White space is blank, tab, newline, carriage return and form feed; `-- ...` is a comment only if its line ends, else it
is two minus signs; `/* ... */` must be closed.

Invariant: every token carries the position of its first character, so that any error can point there.

Java: filter/parser/SelectorParserTokenManager.java
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rocketlet.common.errors import RocketletError

END: Final = "end of text"
NAME: Final = "name"
INTEGER: Final = "integer"
FLOAT: Final = "float"
STRING: Final = "string"

KEYWORDS: Final = frozenset(
    {
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip

_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*(?s:.)*?\*/)+")

# The longest match must win, so floats come before integers and two-character operators before shorter ones.
_TOKEN: Final = re.compile(
    r"""(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |   (?P<integer>0|[1-9][0-9]*[lL]?)
    |   (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |   (?P<string>'(?:''|[^'])*')
    |   (?P<sign><>|<=|>=|[<>=(),+-])
    """,
    re.VERBOSE,
)

_SHOWN = 40  # characters of a long expression shown before and after an error


class FilterSyntaxError(RocketletError):
    """A selector that does not compile. `at` is the position of the error, from 0.

    Not raised while messages are matched: a message with an incomparable value does not match.
    """

    def __init__(self, reason: str, expression: str, at: int) -> None:
        self.reason = reason
        self.expression = expression
        self.at = at
        super().__init__(f"{reason}, at character {at + 1}:\n{_pointer(expression, at)}")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # a keyword in capitals, an operator, or one of END, NAME, INTEGER, FLOAT, STRING
    text: str
    at: int

    def __str__(self) -> str:
        return END if self.kind == END else self.text


class Lexer:
    """The tokens of one expression, with one token of look-ahead beyond the current one."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._ahead: list[Token] = []
        self._at = 0

    def peek(self, distance: int = 0) -> Token:
        """The token after `distance` others. Reads no further."""
        while len(self._ahead) <= distance:
            self._ahead.append(self._cut())
        return self._ahead[distance]

    def take(self) -> Token:
        token = self.peek()
        del self._ahead[0]
        return token

    def error(self, reason: str, at: int) -> FilterSyntaxError:
        return FilterSyntaxError(reason, self.expression, at)

    def _cut(self) -> Token:
        text = self.expression
        if skipped := _SKIPPED.match(text, self._at):
            self._at = skipped.end()
        at = self._at
        if at == len(text):
            return Token(END, "", at)
        match = _TOKEN.match(text, at)
        if match is None:
            raise self.error(_complaint(text, at), at)
        self._at = match.end()
        kind, word = match.lastgroup or "", match.group()
        if kind == "sign":
            kind = word
        elif kind == NAME and word.upper() in KEYWORDS:
            kind = word.upper()
        return Token(kind, word, at)


def _complaint(text: str, at: int) -> str:
    if text[at] == "'":
        return "a string is not closed"
    if text.startswith("/*", at):
        return "a comment is not closed"
    if text.startswith("!=", at):
        return "unequal is written <>, not !="
    if text[at] == '"':
        return "strings need single quotes"
    return f"unexpected character {text[at]!r}"


def _pointer(expression: str, at: int) -> str:
    """The text around the error on one line, and a caret below it."""
    start, end = max(0, at - _SHOWN), at + _SHOWN
    prefix, suffix = "..." if start else "", "..." if end < len(expression) else ""
    excerpt = re.sub(r"[\x00-\x1f\x7f]", " ", expression[start:end])
    return f"{prefix}{excerpt}{suffix}\n{' ' * (len(prefix) + at - start)}^"
