"""Splits SQL92 selectors into tokens, one at a time; errors point at a character.

Tokens are read one by one: whatever follows the token after a complete expression is never read,
so `a b # c` is fine (it means `a`) while `a # c` is not. Keywords are recognised in any case, property names are not.
White space is blank, tab, newline, carriage return and form feed; `-- ...` is a comment only if its line ends, else it
is two minus signs; `/* ... */` must be closed.

Invariant: every token has the position of its first character, so that any error can point there.

Java: filter/parser/SelectorParserTokenManager.java
"""

from __future__ import annotations

import re
from typing import Final

from rocketlet.common.errors import RocketletError

END: Final = "end"
NAME: Final = "name"
INTEGER: Final = "integer"
FLOAT: Final = "float"
STRING: Final = "string"

KEYWORDS: Final = frozenset(
    {
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip

# The longest match must win, so floats come before integers and two-character operators before shorter ones. Two minus
# signs are a comment where a line ends after them: the first pattern does not take them, the second does.
_BLANKS, _SIGNS = r"[ \t\n\r\f]*+", r"<>|<=|>=|[<>=(),+]"
_TOKEN = r"""{blanks}(?:
        (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |   (?P<sign>{signs})
    |   (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |   (?P<integer>0|[1-9][0-9]*[lL]?)
    |   (?P<string>'(?:''|[^'])*')
    |   (?P<end>\Z)
    )"""
_match_before_line_end = re.compile(_TOKEN.format(blanks=_BLANKS, signs=_SIGNS + "|-(?!-)"), re.VERBOSE).match
_match_in_last_line = re.compile(_TOKEN.format(blanks=_BLANKS, signs=_SIGNS + "|-"), re.VERBOSE).match
_match_comments = re.compile(rf"(?:{_BLANKS}(?:--[^\n\r]*[\n\r]|/\*(?s:.)*?\*/))*{_BLANKS}").match
_match_long_comments = re.compile(rf"(?:{_BLANKS}/\*(?s:.)*?\*/)*{_BLANKS}").match

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


class Lexer:
    """The tokens of one expression: `kind`, `text` and `at` are those of the present one.

    `kind` is a keyword in capitals, an operator, or one of END, NAME, INTEGER, FLOAT, STRING. No token is an object: an
    expression of 16 KiB may have as many, and the loop waits while they are read.
    """

    __slots__ = ("_end", "_last_line", "at", "expression", "kind", "text")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        # Where the last line begins: from there on `--` is no comment, and is not looked at as if it might be one. Each
        # of 16,000 minus signs looked for the end of its line: 1.2 s.
        self._last_line = max(expression.rfind("\n"), expression.rfind("\r")) + 1
        self.kind, self.text, self.at = END, "", 0
        self._end = 0
        self.advance()

    def advance(self) -> None:
        """Go on to the next token."""
        expression, end = self.expression, self._end
        match = (_match_in_last_line if end >= self._last_line else _match_before_line_end)(expression, end)
        if match is None:
            match = self._match_after_comments(end)
        kind = match.lastgroup
        assert kind is not None
        self._end = match.end()
        self.text = text = match[kind]
        self.at = self._end - len(text)
        if kind == NAME:
            keyword = text.upper()
            self.kind = keyword if keyword in KEYWORDS else NAME
        elif kind == "sign":
            self.kind = text
        else:
            self.kind = kind

    def _match_after_comments(self, at: int) -> re.Match[str]:
        """The token after comments, which few expressions have."""
        expression = self.expression
        comments = (_match_comments if at < self._last_line else _match_long_comments)(expression, at)
        assert comments is not None
        at = comments.end()
        match = (_match_in_last_line if at >= self._last_line else _match_before_line_end)(expression, at)
        if match is None:
            raise self.error(_complaint(expression, at), at)
        return match

    def following(self) -> str:
        """The kind of the token after this one."""
        here = self.kind, self.text, self.at, self._end
        self.advance()
        kind = self.kind
        self.kind, self.text, self.at, self._end = here
        return kind

    def shown(self) -> str:
        """The present token, for an error."""
        return self.text or "end of text"

    def error(self, reason: str, at: int) -> FilterSyntaxError:
        return FilterSyntaxError(reason, self.expression, at)


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
