"""A long JSON object, some members at a time, so that reading it does not hold the loop.

What is found is as long as its reader wants it, and where a member ends is decided by brackets and quotes alone:
whoever decodes the members finds out whether they are JSON.

Java: none
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocketlet.common.fastjson import InvalidJson

ROWS = 1_000
"""Members that are read at once."""
_DEPTH = 3  # of objects in a member: a topic, its attributes, and one that nobody has yet

# Possessive, so that each byte is looked at once for each level, whatever the text.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'


def _object_of(depth: int) -> bytes:
    inner = b"|" + _object_of(depth - 1) if depth > 1 else b""
    return rb'\{(?:[^{}"]++|' + _STRING + inner + rb")*+\}"


_MEMBER = rb"\s*+" + _STRING + rb"\s*+:\s*+" + _object_of(_DEPTH) + rb"\s*+(?:,|(?=\}))"
_some_members = re.compile(rb"(?:" + _MEMBER + rb"){0,%d}+" % ROWS, re.DOTALL).match
_end = re.compile(rb"\s*+\}").match


class LongObject:
    """An object whose values are objects; `at` is behind its opening brace, and behind its end when all is read."""

    def __init__(self, data: bytes, at: int, size: int) -> None:
        """`size`: bytes that are read at once, so that a longer member cannot be read."""
        self._data = data
        self.at = at
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        """Its members, some at a time, as an object of their own. Raises InvalidJson."""
        data = self._data
        while (found := _some_members(data, self.at, self.at + self._size)) and found.end() > self.at:
            yield b"{%b}" % found.group().removesuffix(b",")
            self.at = found.end()
        if (closing := _end(data, self.at, self.at + self._size)) is None:
            near = data[self.at : self.at + 40]
            raise InvalidJson(
                f"not JSON at byte {self.at}: expected an object of at most {self._size} bytes, at {near!r}"
            )
        self.at = closing.end()
