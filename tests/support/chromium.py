"""A chromium of this machine, driven by Playwright: for tests of pages as users see them. Nothing is downloaded.

    with Chromium.started() as chromium, chromium.visitor(base, "en") as visitor:      # Missing: skip with its text
        visitor.open("/topics")

A visitor fails the test on any script error, refused resource or dialog. It uses the mouse, or only the keyboard: then
everything pressed must be reachable by Tab.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

# The same engine without the windows of a desktop costs a third: 4.3 s of CPU for forty pages instead of 11.7.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_MS = 120_000  # a loaded machine; nothing is waited for that long otherwise
MAX_TABS = 400


class Missing(Exception):
    """This machine cannot drive a browser; the text names what it lacks."""


@dataclass(slots=True)
class Visitor:
    """One browser window with its own cookies."""

    page: Page
    base: str
    language: str = "en"
    by_keyboard: bool = False
    problems: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("console", lambda message: self._said(message))  # it cannot take a method of slots

    def _said(self, message: Any) -> None:
        # Chromium writes a line for every page that is answered with 4xx; those are asked for here.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"{message.type} at {self.page.url}: {message.text}")

    def t(self, text: str, /, **values: object) -> str:
        """The text in the visitor's language."""
        from rocketlet.console.texts import translated

        return translated(text, self.language).format(**values)

    # ---- hands

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)

    def go(self, name: str, key: str) -> None:
        """Open a page of the menu: by its link, or by its keys."""
        if self.by_keyboard:
            self.page.keyboard.press("g")
            self.page.keyboard.press(key)
            self.page.get_by_role("link", name=self.t(name), exact=True).and_(
                self.page.locator("[aria-current=page]")
            ).wait_for()
        else:
            self.page.locator("nav").get_by_role("link", name=self.t(name), exact=True).click()

    def press(self, locator: Locator) -> None:
        """Press a link, a button, a box."""
        locator.wait_for()
        if not self.by_keyboard:
            locator.click()
            return
        self.reach(locator)
        kind = locator.evaluate("one => one.tagName + ' ' + (one.type || '')")
        self.page.keyboard.press("Space" if kind.startswith(("SUMMARY", "INPUT checkbox")) else "Enter")

    def write(self, locator: Locator, text: str) -> None:
        """Fill a field, replacing its content."""
        if self.by_keyboard:
            self.reach(locator)
            self.page.keyboard.press("Control+a")
            self.page.keyboard.insert_text(text)
        else:
            locator.fill(text)

    def reach(self, locator: Locator) -> None:
        """Move there by Tab only. The focus must be visible."""
        here = "one => one === document.activeElement"
        for _ in range(MAX_TABS):
            if locator.evaluate(here):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{locator} cannot be reached by Tab at {self.page.url}")

    def link(self, text: str) -> Locator:
        return self.page.locator("main").get_by_role("link", name=text, exact=True).first

    def button(self, text: str) -> Locator:
        return self.page.get_by_role("button", name=self.t(text), exact=True).first

    # ---- eyes

    def sees(self, text: str) -> None:
        """Expect the text in the page's main part."""
        from playwright.sync_api import TimeoutError as Waited

        try:
            self.page.locator("main").get_by_text(text).first.wait_for()
        except Waited:
            raise AssertionError(f"no {text!r} at {self.page.url} but:\n{self._shown()}") from None

    def _shown(self) -> str:
        return self.page.locator("main").inner_text()[:4000]

    def reads_in_time(self, text: str) -> None:
        """`reads` for a page with changing state: it is reloaded until it shows the text."""
        wanted = self.page.locator("main").get_by_text(self.t(text)).first
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not wanted.is_visible():
            assert time.monotonic() < deadline, f"no {text!r} at {self.page.url} but:\n{self._shown()}"
            self.page.wait_for_timeout(500)
            self.page.reload()

    def reads(self, text: str, /, **values: object) -> None:
        """Expect one of the console's texts, in the visitor's language."""
        self.sees(self.t(text, **values))


class Chromium:
    """One running browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Chromium]:
        """Raises Missing."""
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            raise Missing("no playwright: the extra browser is not installed") from None
        path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
        if path is None:
            raise Missing("no chromium on the PATH (apt install chromium-headless-shell), and CHROMIUM names none")
        # As root, as in containers, chromium runs only without its sandbox; it visits nothing but our own pages.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=arguments)
            try:
                yield cls(browser)
            finally:
                browser.close()

    @contextmanager
    def visitor(
        self, base: str, language: str = "en", *, by_keyboard: bool = False, width: int = 1280, **settings: Any
    ) -> Iterator[Visitor]:
        """A window; at its end it must have met no script error."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            locale={"en": "en-US", "zh": "zh-CN"}[language],
            accept_downloads=True,
            **settings,
        )
        context.set_default_timeout(TIMEOUT_MS)
        try:
            visitor = Visitor(context.new_page(), base, language, by_keyboard)
            visitor.watch()
            yield visitor
            assert visitor.problems == []
        finally:
            context.close()
