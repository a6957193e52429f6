"""The audit log: one line for each change that an administrator makes or attempts: who, from where, what, before and
after.

The lines are JSON, in the logger `rocketlet.audit`, at INFO: who, from, what, about, before, after, outcome. `who` is
the account, or "" without access control. A table of handlers is wrapped: a `Change` for each code gives the request's
subject, and how to read its state before and after. No line contains a secret.

Java: none
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.handler import (
    Answer,
    AsyncFunction,
    Deferred,
    HandlerTable,
    Later,
    PlainFunction,
    Refused,
    Reply,
    Request,
)
from rocketlet.remoting.request_codes import request_name
from rocketlet.remoting.response_codes import ResponseCode, response_name

log = logging.getLogger("rocketlet.audit")

LONGEST_VALUE = 600  # characters of `before` and of `after`


def unknown_state(request: Request) -> Any:
    """For changes whose state cannot be read."""
    return None


@dataclass(frozen=True, slots=True)
class Change:
    """`subject` names what a request changes, `read_state` returns its state as JSON values; both get the request."""

    subject: Callable[[Request], Any]
    read_state: Callable[[Request], Any] = unknown_state


def audited(table: HandlerTable, changes: Mapping[int, Change]) -> HandlerTable:
    """The table, with a line for each request whose code is among the changes."""
    wrapped = {}
    for code, handler in table.items():
        change = changes.get(code)
        if change is not None and inspect.iscoroutinefunction(handler.function):
            handler = handler.wrapped(_audit_task(handler.function, change))
        elif change is not None:
            handler = handler.wrapped(_audit_plain(cast(PlainFunction, handler.function), change))
        wrapped[code] = handler
    return wrapped


def _audit_plain(function: PlainFunction, change: Change) -> PlainFunction:
    def audited_function(request: Request) -> Answer | Deferred:
        subject, before = change.subject(request), change.read_state(request)
        try:
            answer = function(request)
        except Later:
            raise  # nothing has been done yet
        except Exception as error:
            write(request, subject, before, before, _outcome_of(error))
            raise
        write(request, subject, before, change.read_state(request), _outcome(answer))
        return answer

    return audited_function


def _audit_task(function: AsyncFunction, change: Change) -> AsyncFunction:
    async def audited_function(request: Request) -> Answer:
        subject, before = change.subject(request), change.read_state(request)
        try:
            answer = await function(request)
        except Exception as error:
            write(request, subject, before, before, _outcome_of(error))
            raise
        write(request, subject, before, change.read_state(request), _outcome(answer))
        return answer

    return audited_function


def write(request: Request, subject: Any, before: Any, after: Any, outcome: str) -> None:
    """One line."""
    line = {
        "who": request.account,
        "from": request.connection.peer,
        "what": request_name(request.code),
        "about": subject,
        "before": _short(before),
        "after": _short(after) if after != before else "unchanged",
        "outcome": outcome,
    }
    log.info("%s", json.dumps(line, ensure_ascii=False, default=str))


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({len(text)} characters)"


def _outcome(answer: Answer | Deferred) -> str:
    if isinstance(answer, Reply) and answer.code != ResponseCode.SUCCESS:
        return response_name(answer.code)
    return "done" if isinstance(answer, Reply) else "under way"


def _outcome_of(error: Exception) -> str:
    if isinstance(error, Refused):
        return f"{response_name(error.code)}: {error.remark[:200]}"
    return (
        f"{type(error).__name__}: {error}"[:200] if isinstance(error, BodyError) else f"failed: {type(error).__name__}"
    )
