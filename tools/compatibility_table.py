"""Writes the table of request codes in docs/compatibility.md: `python -m rocketlet.tools.compatibility_table`.

The answering side of a code is read from the source of the handler tables (an entry `RequestCode.X: Handler(…)`,
or one added as `handlers[RequestCode.X] = Handler(…)`), so the page shows the actual state, and a test compares. The
reasons for unanswered codes are here.

Java: remoting/protocol/RequestCode.java
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rocketlet.remoting.request_codes import RequestCode

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- codes: written by python -m rocketlet.tools.compatibility_table -->\n", "<!-- end of codes -->\n"

PARTIES = {"namesrv": "name server", "broker": "broker", "access": "broker", "client": "client"}

_RESERVED = "RocketMQ has the number and answers 3 too"
_ACCESS = "it revealed secrets; removed in RocketMQ 4.9.8 too"
_FILTER_SERVER = "filter servers are gone in RocketMQ 4.9 too"
NOT_ANSWERED = {
    **dict.fromkeys([13, 22, 23, 27, 209, 210, 211, 212, 213, 214], _RESERVED),
    54: _ACCESS,
    **dict.fromkeys([301, 302], _FILTER_SERVER),
}
# From 330 on, and these below.
_OF_VERSION_5 = {18, 47, 60, 61, 217, 225}
_OURS = range(30_000, 30_100)  # among brokers of ours


def is_of_version_5(code: RequestCode) -> bool:
    """Whether only RocketMQ 5 has the code."""
    return (code >= 330 and code not in _OURS) or code in _OF_VERSION_5


def answered_by() -> dict[RequestCode, list[str]]:
    """The answering servers by code."""
    result: dict[RequestCode, list[str]] = {}
    for package, party in PARTIES.items():
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in _codes_with_handler(ast.parse(path.read_text("utf-8"))):
                parties = result.setdefault(RequestCode[name], [])
                if party not in parties:
                    parties.append(party)
    return result


def _codes_with_handler(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        entries: list[tuple[ast.AST | None, ast.AST]] = []
        if isinstance(node, ast.Dict):
            entries += zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            entries.append((node.targets[0].slice, node.value))
        for key, value in entries:
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "Handler":
                names = [part.attr for part in ast.walk(key or node) if isinstance(part, ast.Attribute)]
                yield from (name for name in names if name in RequestCode.__members__)


def table() -> str:
    """The generated part of the page."""
    answered = answered_by()
    rows = ["| code | name | answered by | |\n|---|---|---|---|\n"]
    for code in sorted(RequestCode):
        parties = answered.get(code, [])
        if parties or not is_of_version_5(code):
            note = "RocketMQ 5" if is_of_version_5(code) else "" if parties else NOT_ANSWERED.get(code, "planned")
            note = "ours, among brokers" if code in _OURS else note
            rows.append(f"| {code} | {code.name} | {', '.join(parties) or '–'} | {note} |\n")
    return "".join(rows)


def page(present: str) -> str:
    """The page with its table of codes regenerated."""
    head, _, tail = present.partition(BEGIN)
    _, _, foot = tail.partition(END)
    return head + BEGIN + table() + END + foot


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
