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
from rocketlet.client.consuming.received_messages import as_pulled
from rocketlet.common.message import MessageQueue, ReceivedMessage

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
    queue: MessageQueue = field(init=False)
    offsets: list[int] = field(init=False)
    """Where the messages are, whatever the listener makes of them."""
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
        self.queue = self.messages[0].queue
        self.offsets = [message.queue_offset for message in self.messages]
        self.context = ConsumeContext(self.queue, self.orderly)

    def run(self, call: Call, now: Callable[[], float]) -> None:
        """Call the listener, in the current thread. An exception is logged and means: later."""
        self.started = now()
        part = self._next()
        while part is not None:
            try:
                answer = call(part, self.context)
            except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, and even call sys.exit
                self._on_error(error)
            else:
                self._on_answer(answer)
            part = self._next() if self.orderly else None

    async def run_in_task(self, call: Call, now: Callable[[], float]) -> None:
        """The same for a listener that is awaited: not `run` in disguise, for that costs 0.9 µs for each message."""
        self.started = now()
        part = self._next()
        while part is not None:
            try:
                answer = await call(part, self.context)
            except Exception as error:  # noqa: BLE001 - see run
                self._on_error(error)
            else:
                self._on_answer(answer)
            part = self._next() if self.orderly else None

    def _next(self) -> list[ReceivedMessage] | None:
        """The messages of the next call, in a list of the listener's own, or None when a run is over."""
        if not self.orderly:
            return self.messages.copy()
        if self.failed or self.done >= len(self.messages) or self.process_queue.dropped:
            return None
        if self.done:
            self.context = ConsumeContext(self.queue, self.orderly)
        return self.messages[self.done : self.done + self.batch]

    def _on_answer(self, answer: ListenerAnswer) -> None:
        try:
            self.context.check()
            is_consumed = answer is None or consumed(answer)
            part = self.context.consumed
        except Exception as error:  # noqa: BLE001 - even what is shown of the answer may be the user's code
            self._on_error(error)
            return
        if is_consumed:
            size = min(self.batch, len(self.messages) - self.done) if self.orderly else len(self.messages)
            if part is None or self.orderly:
                self.done += size
                return
            self.done += max(0, min(part, size))
        elif isinstance(answer, Later):
            self.context.delay_level = answer.delay_level
            if answer.suspend is not None:
                self.context.suspend = answer.suspend
        self.failed = self.done < len(self.messages)

    def _on_error(self, error: BaseException) -> None:
        first = as_pulled(self.messages[self.done])
        log.error(
            "the listener raised on %s at offset %d (message %s); it will be redelivered",
            self.queue,
            self.offsets[self.done],
            first.message_id,
            exc_info=error,
        )
        self.error = error
        self.failed = True
        try:
            self.context.check()
        except Exception:  # noqa: BLE001 - a field may be gone
            self.context = ConsumeContext(self.queue, self.orderly)


Finished: TypeAlias = Callable[[Sequence[ConsumeJob]], None]
"""Is given the jobs that are over, in the order in which they ended. On the engine's loop."""
