"""Protects log files from peers: no forged lines, no long ones, and no more of them than the disk can take.

Client ids, names and error texts come from peers and appear in log lines. So control characters are escaped, arguments
and lines have a maximum length, and each kind of line, which is a place in the source, has a maximum rate. Dropped
lines are counted, and the count is logged with the next line of any kind, or when the process ends.

Java: none
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_ARGUMENT = 300
LONGEST_LINE = 2_000
LONGEST_TRACEBACK = 20_000
LINES = 100  # of one kind in SECONDS
SECONDS = 10.0

# Besides C0 and C1: line and paragraph separators, and the marks that turn the direction of text around.
_control = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text on one line, with every control character as its escape."""
    return _control.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def cut(text: str, longest: int) -> str:
    """The text, or its beginning and its length."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def message_of(record: logging.LogRecord) -> str:
    """A record's message with long arguments cut, on one line and no longer than LONGEST_LINE."""
    arguments = record.args
    if isinstance(arguments, tuple):
        arguments = tuple(map(_short, arguments))
    message = str(record.msg)
    if arguments:
        message = message % arguments
    return visible(cut(message, LONGEST_LINE))


def _short(argument: object) -> object:
    if isinstance(argument, int | float):
        return argument
    text = argument if isinstance(argument, str) else str(argument)
    # Short arguments stay as they are, for formats like %r.
    return argument if len(text) <= LONGEST_ARGUMENT else cut(text, LONGEST_ARGUMENT)


def traceback_of(formatted: str) -> str:
    """A formatted traceback whose lines cannot be taken for log lines: each is indented and escaped."""
    text = cut(formatted, LONGEST_TRACEBACK)
    return "\n".join(f"    {visible(line)}" for line in text.split("\n"))


@dataclass(slots=True)
class _Kind:
    """Lines of one place in the source since `begin`, and the last that was left out."""

    begin: float
    lines: int = 0
    left_out: logging.LogRecord | None = None


class LineRates(logging.Filter):
    """Lets LINES of each kind through in SECONDS. `report` is given a record that counts what was left out.

    Without a lock: where two threads log at once, a count may be off by a line.
    """

    def __init__(self, report: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._report = report
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._looked_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        now = record.created
        if abs(now - self._looked_at) >= 1.0:
            self._looked_at = now
            self._log_count([place for place, kind in list(self._kinds.items()) if abs(now - kind.begin) >= SECONDS])
        kind = self._kinds.setdefault((record.pathname, record.lineno), _Kind(now))
        kind.lines += 1
        passes = kind.lines <= LINES or record.levelno >= logging.CRITICAL
        if not passes:
            kind.left_out = record
        return passes

    def log_suppressed(self) -> None:
        """Log the counts of everything left out so far: the process ends."""
        self._log_count(list(self._kinds))

    def _log_count(self, places: list[tuple[str, int]]) -> None:
        for place in places:
            kind = self._kinds.pop(place, None)
            count = _count_of(kind) if kind is not None else None
            if count is not None:
                self._report(count)


def _count_of(kind: _Kind) -> logging.LogRecord | None:
    last = kind.left_out
    if last is None:
        return None
    return logging.LogRecord(
        last.name,
        last.levelno,
        last.pathname,
        last.lineno,
        "%d more lines like this one were left out: %s",
        (kind.lines - LINES, message_of(last)),
        None,
    )
