"""One piece of work for a listener: some messages of one queue, and the outcome.

A concurrent job is one call of the listener. An orderly job is a run: call after call in the order of the queue, until
one fails or the queue is taken away, so that a thread is woken once for many messages and not once for each.

Invariant: the first `done` messages are consumed; `failed` says that the call for the next ones asked for another try.

Java: ConsumeMessageConcurrentlyService.ConsumeRequest, ConsumeMessageOrderlyService.ConsumeRequest
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rocketlet.client.consuming.consume_results import ConsumeContext, Later, ListenerAnswer, consumed
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.errors import InvalidUse
from rocketlet.common.message import ReceivedMessage

log = logging.getLogger("rocketlet.client.listener")

Call: TypeAlias = Callable[[Sequence[ReceivedMessage], ConsumeContext], Any]
"""Calls the listener. For workers in threads it returns the listener's answer, for others what is awaited for it."""


@dataclass(slots=True, eq=False)
class ConsumeJob:
    """What a worker takes and hands back. Times are seconds of the engine's clock."""

    process_queue: ProcessQueue
    messages: list[ReceivedMessage]
    orderly: bool = False
    batch: int = 1
    context: ConsumeContext = field(init=False)
    """Of the first call, then of the last."""
    done: int = 0
    failed: bool = False
    error: BaseException | None = None
    started: float = -1.0  # not yet
    expired: bool = False
    on_finished: Callable[[], None] | None = None
    """Called on the engine's loop instead of the consumption's own settling."""

    def __post_init__(self) -> None:
        self.context = ConsumeContext(self.messages[0].queue, self.orderly)

    def run(self, call: Call, now: Callable[[], float]) -> None:
        """Call the listener, in the current thread. An exception is logged and means: later."""
        self.started = now()
        part = self._next()
        while part is not None:
            try:
                answer = call(part, self.context)
            except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, and even call sys.exit
                self._on_error(error, part)
            else:
                self._on_answer(answer, part)
            part = self._next() if self.orderly else None

    async def run_in_task(self, call: Call, now: Callable[[], float]) -> None:
        """The same for a listener that is awaited: not `run` in disguise, for that costs 0.9 µs for each message."""
        self.started = now()
        part = self._next()
        while part is not None:
            try:
                answer = await call(part, self.context)
            except Exception as error:  # noqa: BLE001 - see run
                self._on_error(error, part)
            else:
                self._on_answer(answer, part)
            part = self._next() if self.orderly else None

    def _next(self) -> list[ReceivedMessage] | None:
        """The messages of the next call, or None when a run is over."""
        if not self.orderly:
            return self.messages
        if self.failed or self.done >= len(self.messages) or self.process_queue.dropped:
            return None
        if self.done:
            self.context = ConsumeContext(self.messages[0].queue, self.orderly)
        return self.messages[self.done : self.done + self.batch]

    def _on_answer(self, answer: ListenerAnswer, messages: list[ReceivedMessage]) -> None:
        try:
            self.context.check()
            is_consumed = answer is None or consumed(answer)
        except InvalidUse as error:
            self._on_error(error, messages)
            return
        if is_consumed:
            part = self.context.consumed
            if part is None or self.orderly:
                self.done += len(messages)
                return
            self.done += max(0, min(part, len(messages)))
        elif isinstance(answer, Later):
            self.context.delay_level = answer.delay_level
            if answer.suspend is not None:
                self.context.suspend = answer.suspend
        self.failed = self.done < len(self.messages)

    def _on_error(self, error: BaseException, messages: list[ReceivedMessage]) -> None:
        log.exception(
            "the listener raised on %s at offset %d (message %s); it will be redelivered",
            self.context.queue,
            messages[0].queue_offset,
            messages[0].message_id,
        )
        self.error = error
        self.failed = True
        try:
            self.context.check()
        except InvalidUse:
            self.context = ConsumeContext(self.messages[0].queue, self.orderly)


Finished: TypeAlias = Callable[[Sequence[ConsumeJob]], None]
"""Is given the jobs that are over, in the order in which they ended. On the engine's loop."""
