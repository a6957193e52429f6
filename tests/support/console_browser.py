"""A browser made of requests only: it keeps cookies, submits forms as served, and reads pages as text.

It speaks ASGI with the console directly, so a whole cluster and its console run in memory and virtual time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import urlencode, urlsplit

import trio
from starlette.applications import Starlette


@dataclass(frozen=True, slots=True)
class Page:
    """A response."""

    status: int
    headers: Mapping[str, str]
    html: str

    @property
    def text(self) -> str:
        """The visible text."""
        body = re.sub(r"<(script|style)\b.*?</\1>", " ", self.html, flags=re.S)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())

    @property
    def csrf(self) -> str:
        match = re.search(r'name="csrf" value="([0-9a-f]+)"', self.html)
        return match.group(1) if match else ""


@dataclass(slots=True)
class Browser:
    """One visitor. `get` and `post` follow redirections."""

    app: Starlette
    host: str = "127.0.0.1:8088"
    language: str = "en"
    cookies: dict[str, str] = field(default_factory=dict)
    address: str = "192.0.2.7"

    async def get(self, path: str, *, seconds: float = 30.0) -> Page:
        return await self._followed("GET", path, b"", {}, seconds)

    async def post(self, path: str, fields: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Page:
        """Post a form with the given fields, and the code of the last page."""
        form = "application/x-www-form-urlencoded"
        body = urlencode(fields, doseq=True).encode()
        return await self._followed("POST", path, body, {"content-type": form, **(headers or {})}, 30.0)

    async def submit(self, form_path: str, path: str, **fields: Any) -> Page:
        """Load a page, and submit a form from it."""
        page = await self.get(form_path)
        return await self.post(path, {"csrf": page.csrf, **fields})

    async def _followed(self, method: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Page:
        page = await self._ask(method, path, body, headers, seconds)
        while page.status in (302, 303):
            page = await self._ask("GET", page.headers["location"], b"", {}, seconds)
        return page

    async def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Page:
        parts = urlsplit(path)
        sent = {
            "host": self.host,
            "accept-language": self.language,
            "content-length": str(len(body)),
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            **headers,
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": _unquoted(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": (self.address, 4711),
            "server": ("127.0.0.1", 8088),
        }
        events: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await trio.sleep_forever()
            raise AssertionError

        async def send(event: dict[str, Any]) -> None:
            events.append(event)

        with trio.move_on_after(seconds):
            await self.app(scope, receive, send)  # type: ignore[arg-type]
        answer_headers = [(name.decode(), value.decode()) for name, value in events[0]["headers"]]
        for name, value in answer_headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                worth = rest.partition(";")[0].strip('"')
                if "Max-Age=0" in value:
                    self.cookies.pop(key, None)
                else:
                    self.cookies[key] = worth
        text = b"".join(event.get("body", b"") for event in events[1:]).decode(errors="replace")
        return Page(events[0]["status"], dict(answer_headers), text)


def _unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)
