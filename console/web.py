"""Common to all pages: visitor and role, language, forms with a code, responses.

    async def topics(view: View) -> Response:
        return view.page("topics.html", rows=rows)

A page that changes something calls `view.change`, which checks the role, writes the audit line, and shows the result on
the next page.

Java: rocketmq-dashboard's controller/, interceptor/AuthInterceptor.java
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rocketlet.client.errors import ClientError
from rocketlet.client.talking.session import World
from rocketlet.common.clock import WallClock, monotonic_ms
from rocketlet.common.errors import RocketletError
from rocketlet.console.audit import Audit
from rocketlet.console.charts import short
from rocketlet.console.cluster import Cluster
from rocketlet.console.config import LOOPBACK, ConsoleConfig
from rocketlet.console.history import History
from rocketlet.console.jobs import Job, Jobs
from rocketlet.console.texts import LANGUAGES, translated
from rocketlet.console.visitors import Role, Visitors
from rocketlet.remoting.command import version_name
from rocketlet.remoting.errors import RemotingError
from rocketlet.tools.admin.calls import Admin, NoSuchBroker, NoSuchCluster, NoSuchTopic
from rocketlet.tools.admin.command import AdminError
from rocketlet.tools.admin.sending import Send, sender
from rocketlet.tools.dead_letters import DeadLetters, dead_letters_of

log = logging.getLogger("rocketlet.console.web")

PAGE_ROWS = 50
LARGEST_FORM = 6 << 20
LARGEST_STRANGERS_FORM = 16 << 10  # before login
VISITOR, FLASH, LANGUAGE, THEME = "rocketlet_id", "rocketlet_flash", "rocketlet_lang", "rocketlet_theme"
_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(RocketletError):
    """The request cannot be carried out; the text is shown on the page. `status` is HTTP's."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Console:
    """State shared by all pages."""

    config: ConsoleConfig
    cluster: Cluster
    history: History
    visitors: Visitors
    audit: Audit
    jobs: Jobs
    clock: WallClock
    world: World | None = None
    tails: int = 0
    """Pages that show messages as they come, each of which asks brokers twice a second."""

    @property
    def calls(self) -> Admin:
        return self.cluster.calls

    def sender(self) -> AbstractAsyncContextManager[Send]:
        """Sends with the console's account, if it has one."""
        return sender(self.calls.namesrvs, "rocketlet-console", self.world, **self._account())

    def dead_letters(self, group: str) -> AbstractAsyncContextManager[DeadLetters]:
        """A group's dead letters, with the same account."""
        return dead_letters_of(group, ";".join(self.calls.namesrvs), self.world, **self._account())

    def _account(self) -> dict[str, Any]:
        config = self.config
        return {
            "access_key": config.access_key, "secret_key": config.secret_key, "tls": config.tls,
            "tls_ca_file": config.tls_ca_file, "tls_cert_file": config.tls_cert_file,
            "tls_key_file": config.tls_key_file, "tls_server_name": config.tls_server_name,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pager:
    """A page of a long list."""

    rows: Sequence[Any]
    number: int
    pages: int
    total: int


class View:
    """One request and its response."""

    def __init__(self, request: Request, console: Console, form: Mapping[str, str], visitor: str) -> None:
        self.request = request
        self.console = console
        self.cluster = console.cluster
        self.calls = console.calls
        self.form = form
        self.visitor = visitor
        self.role = console.visitors.role(visitor, monotonic_ms() / 1000)
        self.language = _language(request, console.config)
        self._flash: tuple[str, bool] | None = None
        self._new_visitor = False

    # ---- the request

    def query_value(self, name: str, default: str = "") -> str:
        """A query parameter."""
        return self.request.query_params.get(name, default).strip()

    def part(self, name: str) -> str:
        """A path parameter."""
        return str(self.request.path_params[name])

    def form_value(self, name: str, default: str = "") -> str:
        """A form field."""
        return self.form.get(name, default).strip()

    def number(self, text: str, name: str, least: int = 0, most: int = 1 << 62) -> int:
        """Raises Refused if it is not a number, or out of bounds."""
        try:
            value = int(text)
        except ValueError:
            raise Refused(self.t("{name} must be a number").format(name=name)) from None
        if not least <= value <= most:
            raise Refused(
                self.t("{name} must lie between {least} and {most}").format(name=name, least=least, most=most)
            )
        return value

    def moment(self, text: str) -> int | None:
        """Milliseconds from a browser's local time or a number; None if empty."""
        if not text:
            return None
        if text.isdigit():
            return int(text)
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise Refused(self.t("{text} is no time").format(text=text)) from None

    def paged(self, rows: Sequence[Any]) -> Pager:
        """The rows of the requested page."""
        pages = max(math.ceil(len(rows) / PAGE_ROWS), 1)
        text = self.query_value("page", "1")
        number = min(max(int(text), 1), pages) if text.isdigit() and len(text) < 9 else 1
        return Pager(rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], number, pages, len(rows))

    # ---- the response

    def t(self, text: str) -> str:
        """Translate into the visitor's language."""
        return translated(text, self.language)

    @property
    def may_change(self) -> bool:
        return self.role >= Role.OPERATOR

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template."""
        flash = self.console.visitors.unsealed(self.request.cookies.get(FLASH, ""))
        shown_flash = flash if isinstance(flash, list) and len(flash) == 2 else None
        html = (
            environment()
            .get_template(template)
            .render(
                view=self,
                t=self.t,
                language=self.language,
                languages=LANGUAGES,
                theme=self.theme,
                csrf=self.console.visitors.form_code(self.visitor),
                may_change=self.may_change,
                needs_login=self.console.visitors.needs_login,
                namesrv=";".join(self.calls.namesrvs),
                flash=shown_flash,
                here=self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else ""),
                now=self.console.clock(),
                **values,
            )
        )
        response = HTMLResponse(html, status)
        if shown_flash is not None:
            response.delete_cookie(FLASH)
        return self.finished(response)

    def finished(self, response: Response) -> Response:
        response.headers.update(_SECURITY)
        if self.request.cookies.get(VISITOR) != self.visitor:
            self.remember(response)
        return response

    def remember(self, response: Response) -> None:
        """Have the browser keep its id."""
        response.set_cookie(VISITOR, self.visitor, httponly=True, samesite="strict", secure=self.is_https)

    @property
    def is_https(self) -> bool:
        return self.request.url.scheme == "https"

    @property
    def theme(self) -> str:
        theme = self.request.cookies.get(THEME, "")
        return theme if theme in ("light", "dark") else ""

    def to(self, path: str, message: str = "", *, bad: bool = False) -> Response:
        """Redirect to another page, which shows this message first."""
        response = RedirectResponse(path, 303)
        if message:
            sealed = self.console.visitors.sealed([message[:1500], bad])
            response.set_cookie(FLASH, sealed, max_age=60, httponly=True, samesite="strict", secure=self.is_https)
        return self.finished(response)

    # ---- changes

    async def change(
        self, action: str, subject: Mapping[str, object], do: Callable[[], Awaitable[str]], then: str
    ) -> Response:
        """Make a change, audit it, and redirect to a page that shows the result."""
        self._check_change(action, subject)
        try:
            message = await do()
        except (RocketletError, ExceptionGroup) as error:
            self._audit(action, subject, f"failed: {error}")
            return self.to(then, str(error), bad=True)
        self._audit(action, subject, "done")
        self.cluster.forget()
        return self.to(then, message)

    def begin(
        self, action: str, subject: Mapping[str, object], work: Callable[[Job], Awaitable[str]], then: str
    ) -> Response:
        """Start a long change, and redirect to the page with its progress."""
        self._check_change(action, subject)

        def ended(job: Job) -> None:
            self._audit(action, subject, f"{'failed' if job.bad else 'done'}: {job.outcome}")
            self.cluster.forget()

        job = self.console.jobs.begin(action, then, work, ended)
        self._audit(action, subject, "begun")
        return self.to(f"/jobs/{job.id}")

    def _check_change(self, action: str, subject: Mapping[str, object]) -> None:
        if not self.may_change:
            self._audit(action, subject, "forbidden")
            raise Refused(self.t("You may look, but not change anything."), 403)
        try:
            self.console.audit.check()
        except OSError as error:
            text = self.t("The audit log cannot be written, so nothing is changed: {why}")
            raise Refused(text.format(why=error), 500) from None

    def _audit(self, action: str, subject: Mapping[str, object], outcome: str) -> None:
        client = self.request.client.host if self.request.client else "?"
        self.console.audit.write(self.console.clock(), client, self.role.name.lower(), action, subject, outcome)


Page = Callable[[View], Awaitable[Response]]


def endpoint(page: Page, *, public: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a page: identify the visitor, verify the form's code, and render errors as pages."""

    async def answered(request: Request) -> Response:
        console: Console = request.app.state.console
        visitor = request.cookies.get(VISITOR, "")
        if len(visitor) != 32 or not visitor.isalnum():
            visitor = console.visitors.new_id()
        form: dict[str, str] = {}
        if request.method == "POST":
            length = request.headers.get("content-length", "")
            stranger = console.visitors.role(visitor, monotonic_ms() / 1000) is Role.NOBODY
            if not length.isdigit() or int(length) > (LARGEST_STRANGERS_FORM if stranger else LARGEST_FORM):
                return Response("the form is too large", 413, _SECURITY)
            submitted = await request.form(max_files=1, max_fields=1000, max_part_size=LARGEST_FORM)
            form = {name: value for name, value in submitted.items() if isinstance(value, str)}
            form["several"] = "\n".join(value for value in submitted.getlist("one") if isinstance(value, str))
        view = View(request, console, form, visitor)
        if not _is_for_us(request, console.config):
            return view.page("error.html", 400, title=view.t("Another host's name"), text=_host_help(request))
        if request.method == "POST" and not _is_our_form(request, view):
            return view.page(
                "error.html", 403, title=view.t("Not sent from here"), text=view.t("Load the page again and retry.")
            )
        if view.role is Role.NOBODY and not public:
            return view.to("/login?" + urlencode({"then": request.url.path}))
        try:
            return await page(view)
        except (NoSuchTopic, NoSuchBroker, NoSuchCluster, AdminError) as error:
            return view.page("error.html", 404, title=view.t("Not found"), text=str(error))
        except Refused as error:
            return view.page("error.html", error.status, title=view.t("This cannot be done"), text=str(error))
        except (RemotingError, ClientError, RocketletError) as error:
            return view.page("error.html", 502, title=view.t("The cluster does not answer"), text=str(error))
        except Exception:
            log.exception("the page %s failed", request.url.path)
            text = view.t("The console's log has the reason.")
            return view.page("error.html", 500, title=view.t("The page failed"), text=text)

    return answered


def _is_for_us(request: Request, config: ConsoleConfig) -> bool:
    """Whether the Host header is ours: a page of another site whose name was pointed here has another one."""
    name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if config.needs_login and not config.names:
        return True  # a foreign name does not get our cookie
    return name in {*LOOPBACK, config.host, *config.names}


def _host_help(request: Request) -> str:
    return f"{request.headers.get('host', '')}: --name"


def _is_our_form(request: Request, view: View) -> bool:
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return view.console.visitors.is_form_code(request.cookies.get(VISITOR, ""), view.form_value("csrf"))


def _language(request: Request, config: ConsoleConfig) -> str:
    language = request.cookies.get(LANGUAGE) or config.language
    if language in LANGUAGES:
        return language
    accepted = request.headers.get("accept-language", "").lower()
    return "zh" if accepted.startswith("zh") else "en"


_environment: jinja2.Environment | None = None


def environment() -> jinja2.Environment:
    """The templates, each value escaped."""
    global _environment
    if _environment is None:
        folder = str(files("rocketlet.console") / "templates")
        _environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        _environment.filters |= {
            "short": short,
            "time": time_text,
            "ago": ago,
            "size": size_text,
            "count": lambda number: f"{number:,}",
            "url": _quoted,
            "version": version_name,
        }
    return _environment


def _quoted(text: object) -> str:
    from urllib.parse import quote

    return quote(str(text), safe="")


def time_text(ms: int) -> str:
    """Local time, to the second."""
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if 0 < ms < 1 << 47 else "–"


def ago(ms: float) -> str:
    """A duration: 350 ms, 12 s, 3 min, 5 h, 2 d."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.1f} {unit}" if ms < 10 * size else f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms" if ms > 0 else "0"


def size_text(count: float) -> str:
    """1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
