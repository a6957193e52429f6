"""A mkdocs hook: the pages of the top directory (such as ARCHITECTURE.md) join those of docs/ on the site.

In the tree a page links to files beside or above it, as on GitHub. On the site all pages are in one place, so links
into and out of docs/ are shortened; links to anything else in the tree, a directory or a source file, become plain
text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
TOP_PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the top pages to the site."""
    for name in TOP_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of one page, outside its code blocks."""
    name = page.file.src_uri
    folder = "" if name in TOP_PAGES else posixpath.join("docs", posixpath.dirname(name))
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_LINK.sub(lambda link: _bent(link, folder, files, page), part) for part in parts[::2]]
    return "".join(parts)


def _bent(link: re.Match[str], folder: str, files: Any, page: Any) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if not target or re.match("[a-z]+:", target):
        return link[0]
    in_tree = posixpath.normpath(posixpath.join(folder, target))
    on_site = in_tree.removeprefix("docs/")
    if files.get_file_from_path(on_site) is None:
        return text
    return f"[{text}]({posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
