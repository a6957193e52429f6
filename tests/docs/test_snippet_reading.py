"""Finding programs in pages (tests/docs/snippets.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.snippets import matches, snippets, steps

PAGE = """# A page

```python
print(1)
```

<!-- not run: it takes a day -->
```console
$ rocketlet sleep
```

<!-- until: ready -->
```console
$ rocketlet up \\
    --memory
Rocketlet is ready.
```

```text
$ nothing
```
"""


def test_words_and_comments(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, "utf-8")
    found = snippets(tmp_path, Path("page.md"))
    assert [(one.word, one.line, one.not_run, one.until) for one in found] == [
        ("python", 3, "", ""),
        ("console", 8, "it takes a day", ""),
        ("console", 13, "", "ready"),
    ]
    assert found[0].text == "print(1)\n"
    assert [(step.command, step.output) for step in steps(found[2].text)] == [
        ("rocketlet up \\\n    --memory", "Rocketlet is ready.")
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "is_so"),
    [
        ("SEND_OK ... in hello/...", "SEND_OK 7F in hello/broker-a/0 at 1\n", True),
        ("a  b", "a b\n", True),
        ("a b", "a c\n", False),
        ("a b", "a b c", False),
        ("a ...", "a", False),
        ("one\n...\nlast", "one\ntwo\nthree\nlast\n", True),
        ("(x) $1 [y]", "(x) $1 [y]", True),
    ],
)
def test_expected_output(expected: str, printed: str, is_so: bool) -> None:
    assert matches(expected, printed) is is_so
