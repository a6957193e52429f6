"""Checks of the documentation: links resolve, generated pages are up to date."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from rocketlet.tools import compatibility_table

ROOT = Path(__file__).parent.parent


def markdown_files() -> list[Path]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted([*found, *ROOT.glob("benchmarks/**/*.md")])


def anchors(path: Path) -> set[str]:
    """Anchors as GitHub derives them from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S), re.M)
    plain = [
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.+?)\]\(.+?\)", r"\1", heading)).strip().lower() for heading in headings
    ]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/**/*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_is_linked_from_an_index(path: Path) -> None:
    if path == ROOT / "docs" / "README.md":
        return
    indexes = [ROOT / "docs" / "README.md", path.parent / "README.md"]
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in indexes
        if index.exists()
        for target in re.findall(r"\]\(([^)\s]+)\)", index.read_text("utf-8"))
    }
    assert path.resolve() in linked, "link it from docs/README.md or the README.md beside it"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"(\S+\.md)$", nav, re.M)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted([*pages, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])


def test_the_table_of_request_codes_is_up_to_date() -> None:
    present = compatibility_table.PAGE.read_text("utf-8")
    assert present == compatibility_table.page(present), "run: make docs"


def test_every_unserved_code_has_a_reason() -> None:
    answered = compatibility_table.answered_by()
    assert not set(compatibility_table.NOT_ANSWERED) & set(answered), "answered after all: take it from the list"


@pytest.mark.process
def test_make_lists_its_targets() -> None:
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("quickstart", "test", "quick", "fast", "check", "docs", "bench", "interop", "clean"):
        assert re.search(rf"^  make {target} +\S", listed, re.M), target
