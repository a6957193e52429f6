"""How commands print: tables for people, JSON lines for machines, colours only on terminals.

Java: (none)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from rocketlet.common.moment import moment_of


def say(text: str, **style: Any) -> None:
    """A line on stdout; styled only on a terminal, and not if NO_COLOR is set and not empty."""
    if style and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = click.style(text, **style)
    click.echo(text)


def print_json(value: Any) -> None:
    """One line of JSON. Bytes that are not UTF-8 become hexadecimal digits."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return text_of(bytes(value))
    return str(value)


def text_of(body: bytes) -> str:
    """A body as text, or as hexadecimal digits if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.hex()


def time_of(ms: int) -> str:
    """A time as a person reads it, local; empty for none."""
    return moment_of(ms).isoformat(sep=" ", timespec="milliseconds") if ms > 0 else ""


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as their contents; numbers are aligned to the right."""
    lines = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(head), *(len(line[column]) for line in lines)) if lines else len(head)
        for column, head in enumerate(heads)
    ]
    rights = [
        bool(lines) and all(line[column].replace(",", "").lstrip("-").isdigit() for line in lines)
        for column in range(len(heads))
    ]
    say(_line(heads, widths, rights), bold=True)
    for line in lines:
        click.echo(_line(line, widths, rights))


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    parts = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(cells, widths, rights, strict=True)]
    return "  ".join(parts).rstrip()


def print_rows(heads: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """The same rows as a table, or one JSON object a line; `heads` are their keys."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(heads, [[row[head] for head in heads] for row in rows])
