"""All routes of the console."""

from __future__ import annotations

from starlette.routing import Route

from rocketlet.console.pages import (
    access,
    cluster,
    consumers,
    dashboard,
    dead_letters,
    jobs,
    login,
    messages,
    ops,
    producers,
    topics,
    traces,
)
from rocketlet.console.web import Page, endpoint


def _get(path: str, page: Page, *, public: bool = False) -> Route:
    return Route(path, endpoint(page, public=public), methods=["GET"])


def _post(path: str, page: Page, *, public: bool = False) -> Route:
    return Route(path, endpoint(page, public=public), methods=["POST"])


ROUTES = [
    _get("/", dashboard.dashboard),
    _get("/ops", ops.ops),
    _post("/ops/namesrvs", ops.use_namesrvs),
    _get("/cluster", cluster.brokers),
    _get("/cluster/{name}/{number}", cluster.broker),
    _post("/cluster/{name}/{number}/set", cluster.set_setting),
    _post("/cluster/{name}/{number}/writing", cluster.writing),
    _post("/cluster/{name}/{number}/promote", cluster.promote),
    _post("/cluster/{name}/{number}/switch", cluster.switch),
    _post("/cluster/{name}/{number}/in-sync", cluster.in_sync),
    _get("/topics", topics.topics),
    _post("/topics", topics.save),
    _get("/topics/{topic}", topics.topic),
    _post("/topics/{topic}/delete", topics.delete),
    _post("/topics/{topic}/send", topics.send),
    _get("/topics/{topic}/tail", topics.tail),
    _get("/topics/{topic}/tail/events", topics.tail_events),
    _get("/consumers", consumers.consumers),
    _post("/consumers", consumers.save),
    _get("/consumers/{group}", consumers.consumer),
    _get("/consumers/{group}/stack", consumers.stack),
    _post("/consumers/{group}/delete", consumers.delete),
    _post("/consumers/{group}/move", consumers.move),
    _get("/producers", producers.producers),
    _get("/messages", messages.messages),
    _get("/messages/{topic}/{broker}/{queue}/{offset}", messages.message),
    _get("/messages/{topic}/{broker}/{queue}/{offset}/body", messages.download),
    _post("/messages/{topic}/{broker}/{queue}/{offset}/again", messages.again),
    _post("/messages/{topic}/{broker}/{queue}/{offset}/directly", messages.directly),
    _get("/dead-letters", dead_letters.groups),
    _get("/dead-letters/{group}", dead_letters.group),
    _get("/dead-letters/{group}/export", dead_letters.export),
    _post("/dead-letters/{group}/again", dead_letters.again),
    _get("/jobs/{id}", jobs.job),
    _post("/jobs/{id}/stop", jobs.stop),
    _get("/traces", traces.traces),
    _get("/access", access.access),
    _post("/access", access.save),
    _post("/access/delete", access.delete),
    _post("/access/everywhere", access.everywhere),
    _get("/access/{account}", access.rights),
    _get("/login", login.login, public=True),
    _post("/login", login.log_in, public=True),
    _post("/logout", login.log_out, public=True),
    _post("/prefer", login.prefer, public=True),
]
