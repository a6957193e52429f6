"""Large tables as JSON, a piece at a time, so that neither a file nor an answer of 100,000 rows holds the loop.

Other tasks may change the table between two pieces: each row is then told as it was or as it is.

Java: none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from rocketlet.common.fastjson import dumps

Row = TypeVar("Row")

PIECE = 500
"""Rows that are written at once: about a millisecond."""
LINES = b",\n"
"""Between the rows of a file, which people read too."""


def in_pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, PIECE at a time."""
    remaining = iter(rows)
    while piece := list(islice(remaining, PIECE)):
        yield piece


def object_pieces(rows: Iterable[tuple[str, Any]], separator: bytes = b",") -> Iterator[bytes]:
    """An object with these names and values. A value that is JSON already is a `msgspec.Raw`."""
    prefix = b"{"
    for part in in_pieces(rows):
        yield prefix + separator.join(b"%b:%b" % (dumps(name), dumps(value)) for name, value in part)
        prefix = separator
    yield b"{}" if prefix == b"{" else b"}"
