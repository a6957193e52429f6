"""Login, logout, and a visitor's preferences: language, light or dark.

Java: rocketmq-dashboard's controller/LoginController.java
"""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from rocketlet.common.clock import monotonic_ms
from rocketlet.console.texts import LANGUAGES
from rocketlet.console.visitors import Role
from rocketlet.console.web import LANGUAGE, THEME, VISITOR, View


async def login(view: View) -> Response:
    if view.role is not Role.NOBODY:
        return view.to("/")
    return view.page("login.html", then=_ours(view.query_value("then", "/")), wrong=False)


async def log_in(view: View) -> Response:
    visitor = view.console.visitors.log_in(view.form_value("token"), monotonic_ms() / 1000)
    if visitor is None:
        view.console.audit.write(view.console.clock(), _visitor_name(view), "nobody", "login", {}, "refused")
        return view.page("login.html", 401, then=_ours(view.form_value("then", "/")), wrong=True)
    view.visitor = visitor
    view.console.audit.write(view.console.clock(), _visitor_name(view), "nobody", "login", {}, "done")
    response = view.to(_ours(view.form_value("then", "/")))
    view.remember(response)
    return response


async def log_out(view: View) -> Response:
    view.console.visitors.log_out(view.visitor)
    response = view.to("/login")
    response.delete_cookie(VISITOR)
    return response


async def prefer(view: View) -> Response:
    """Keep a choice in the browser, and go back."""
    response = RedirectResponse(_ours(view.form_value("then", "/")), 303)
    language, theme = view.form_value("language"), view.form_value("theme")
    if language in LANGUAGES:
        response.set_cookie(LANGUAGE, language, max_age=31_536_000, samesite="strict", httponly=True)
    if theme in ("light", "dark", "auto"):
        response.set_cookie(THEME, theme, max_age=31_536_000, samesite="strict", httponly=True)
    return view.finished(response)


def _visitor_name(view: View) -> str:
    return view.request.client.host if view.request.client else "?"


def _ours(path: str) -> str:
    """One of our pages: never another site's, however the address is written."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path else "/"
