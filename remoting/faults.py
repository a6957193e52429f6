"""Scripted faults: the next requests of a code are refused, delayed, dropped, or disconnected.

    faults = Faults()
    server = Server(faults.around(handlers), network)
    fault = faults.on(RequestCode.SEND_MESSAGE_V2, reply=ResponseCode.SYSTEM_BUSY, times=3)
    ...
    assert fault.met == 3

For testing an application against a server in its own process. A fault expires after `times` requests; of several that
match, the one set first applies first. With none set, a request costs one dictionary lookup.

Java: (none)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import cast

import trio

from rocketlet.remoting.handler import (
    DEFERRED,
    Answer,
    AsyncFunction,
    Deferred,
    Handler,
    HandlerTable,
    PlainFunction,
    Refused,
    Reply,
    Request,
)

Condition = Callable[[Request], bool]


@dataclass(slots=True, eq=False)
class Fault:
    """A fault for some requests. `met` counts the requests it was applied to."""

    reply: int | None = None
    remark: str = "a fault that was asked for"
    delay: float = 0.0
    drop: bool = False
    disconnect: bool = False
    times: int | None = 1
    when: Condition | None = None
    met: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has been applied to all its requests."""
        return self.times is not None and self.met >= self.times


class Faults:
    """The script. `on` may be called from any thread, since it only adds to a list."""

    def __init__(self, after_late_answer: Callable[[], None] | None = None) -> None:
        """`after_late_answer` is called after a delayed request as a server's `after_turn` is after a turn."""
        self._by_code: dict[int, list[Fault]] = {}
        self._after_late_answer = after_late_answer

    def on(
        self,
        code: int,
        *,
        reply: int | None = None,
        remark: str = "a fault that was asked for",
        delay: float = 0.0,
        drop: bool = False,
        disconnect: bool = False,
        times: int | None = 1,
        when: Condition | None = None,
    ) -> Fault:
        """Make the next `times` requests of a code (None: all, until `clear`) fail.

        `reply` answers with that response code, `drop` not at all, `disconnect` closes the connection instead; after
        `delay` seconds; `delay` alone delays the request, which is then handled as usual. `when(request)` chooses among
        them.
        """
        if reply is None and not (delay or drop or disconnect):
            raise ValueError("a fault needs at least one of reply, delay, drop and disconnect")
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a fault happens once at least; None means until cleared")
        fault = Fault(reply, remark, delay, drop, disconnect, times, when)
        self._by_code.setdefault(int(code), []).append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self._by_code.clear()

    def wrap(self, handlers: HandlerTable) -> HandlerTable:
        """The table, with this script in front of each handler."""
        return {code: self._wrap_handler(int(code), handler) for code, handler in handlers.items()}

    def _wrap_handler(self, code: int, handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler.function):
            task = cast(AsyncFunction, handler.function)

            async def run(request: Request) -> Answer:
                fault = self._next(code, request)
                if fault is None:
                    return await task(request)
                await trio.sleep(fault.delay)
                is_done, answer = _done_by(fault, request)
                return answer if is_done else await task(request)

            return handler.wrapped(run)
        function = cast(PlainFunction, handler.function)

        def handle(request: Request) -> Answer | Deferred:
            fault = self._next(code, request)
            if fault is None:
                return function(request)
            if fault.delay:
                request.connection.start_task(self._later, fault, function, copy(request))  # DEFERRED drops the body
                return DEFERRED
            is_done, answer = _done_by(fault, request)
            return answer if is_done else function(request)

        return handler.wrapped(handle)

    def _next(self, code: int, request: Request) -> Fault | None:
        faults = self._by_code.get(code)
        if not faults:
            return None
        for fault in faults:
            if not fault.is_over and (fault.when is None or fault.when(request)):
                fault.met += 1
                return fault
        return None

    async def _later(self, fault: Fault, function: PlainFunction, request: Request) -> None:
        await trio.sleep(fault.delay)
        is_done, answer = _done_by(fault, request)
        if not is_done:
            try:
                outcome = function(request)
            except Refused as refused:
                outcome = Reply(refused.code, refused.header, b"", refused.remark or None)
            if self._after_late_answer is not None:
                self._after_late_answer()
            if isinstance(outcome, Deferred):
                return  # the handler that deferred it replies
            answer = outcome
        request.reply(answer)


def _done_by(fault: Fault, request: Request) -> tuple[bool, Answer]:
    """Whether the fault replaces the handler, and its answer."""
    if fault.disconnect:
        request.connection.close()
        return True, None
    if fault.drop:
        return True, None
    if fault.reply is not None:
        return True, Reply(fault.reply, None, b"", fault.remark)
    return False, None
