"""The code blocks of the documentation, and how each is run.

The word of a fenced block says what it is:

- `python`: is run; the blocks of a page run in order and share their names, as if typed by a reader;
- `console`: each line after `$ ` runs in a shell; the lines below it are its output, `...` matches anything;
- `text`, and everything else that is not a program, is not run.

A comment in the line before a block changes that: `<!-- not run: why -->`, or `<!-- until: text -->` for a program that
keeps running, which is stopped once it has printed the text. A python block with a `test_` function runs under pytest.

The address 127.0.0.1:9876 is replaced by the tests' name server, 127.0.0.1:8081 by their gRPC endpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NAMESRV = "127.0.0.1:9876"
GRPC = "127.0.0.1:8081"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>not run|until): (?P<what>[^>]+?) -->\n)?^```(?P<word>\S*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block with a program."""

    page: Path
    line: int
    word: str
    text: str
    not_run: str = ""
    until: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a console block, and its output (empty: unspecified)."""

    command: str
    output: str


def snippets(root: Path, page: Path) -> list[Snippet]:
    """The programs of a page."""
    text = (root / page).read_text("utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        if block["word"] not in ("python", "console", "sh"):
            continue
        line = text.count("\n", 0, block.start("word")) + 1
        reason = block["what"] or ""
        not_run, until = (reason, "") if block["how"] == "not run" else ("", reason)
        found.append(Snippet(page, line, block["word"], block["text"], not_run, until))
    return found


def steps(text: str) -> list[Step]:
    """The commands of a console block. A command continues on the next line after a backslash."""
    found: list[Step] = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        found.append(Step("\n".join(lines[:count]), "\n".join(lines[count:]).strip()))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether a program printed what a page shows; `...` matches anything, blanks match any blanks."""
    pattern = r"\s+".join(
        ".*".join(re.escape(piece) for piece in word.split("...")) for word in expected.replace("...\n", "... ").split()
    )
    return re.fullmatch(rf"\s*{pattern}\s*", printed, re.S) is not None
