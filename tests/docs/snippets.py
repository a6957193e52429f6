"""The code blocks of the documentation, and how each is to be run.

A fenced block says by its word what it is:

- `python`: runs; the blocks of a page run in order and share their names, as a reader would type them;
- `console`: each line behind `$ ` runs in a shell; the lines below it are what it prints, `...` standing for anything;
- `text`, and everything else that is no program, does not run.

A comment in the line before a block changes that: `<!-- not run: why -->`, or `<!-- until: text -->` for a program that
stays, which is stopped once it has printed the text. A python block with a `test_` function runs under pytest.

The address 127.0.0.1:9876 stands for whatever name server the tests have, 127.0.0.1:8081 for their gRPC endpoint.
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
    """One block that is a program."""

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
    """One command of a console block, and what it prints (empty: nothing is said about it)."""

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
    """The commands of a console block. A command goes on in the next line behind a backslash."""
    found: list[Step] = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        found.append(Step("\n".join(lines[:count]), "\n".join(lines[count:]).strip()))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether a program printed what a page says; `...` stands for anything, blanks for any blanks."""
    pattern = r"\s+".join(
        ".*".join(re.escape(piece) for piece in word.split("...")) for word in expected.replace("...\n", "... ").split()
    )
    return re.fullmatch(rf"\s*{pattern}\s*", printed, re.S) is not None
