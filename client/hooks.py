"""User hooks around sending and consuming: for tracing, counting, vetoes.

All are plain functions called where the client works: before a send in the sender's thread, after it there or on the
engine's loop, around consumption where the listener runs. They must not wait. One that raises before a send vetoes it;
any other is logged and does no harm.

Java: client/hook/SendMessageHook.java, ConsumeMessageHook.java, CheckForbiddenHook.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from rocketlet.client.consuming.consume_job import Call
from rocketlet.client.consuming.consume_results import ConsumeContext, ListenerAnswer, consumed
from rocketlet.client.errors import RAISED_BY_USERS, ClientError
from rocketlet.client.sending.send_result import SendResult, TransactionState
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage

log = logging.getLogger("rocketlet.client.hooks")

Context = TypeVar("Context")


@dataclass(slots=True)
class SendContext:
    """One send, from before its first try until after its last. `notes` is for the hooks themselves."""

    group: str
    message: Message
    message_id: str
    born: int
    body_size: int
    is_half: bool = False
    """Whether it is the first half of a transaction."""
    result: SendResult | None = None
    error: ClientError | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    """What a hook puts here before the send travels with the message, which is left as it is; not with a batch."""


class SendHook(Protocol):
    """Around each send."""

    def before_send(self, context: SendContext) -> None:
        """The message is checked and has its id. An exception reaches the sender, and nothing is sent."""

    def after_send(self, context: SendContext) -> None:
        """There is a result or an error. Not for one-way sends."""


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The broker was told the outcome of a transaction: by the send itself, or because it asked."""

    group: str
    message: Message | ReceivedMessage
    message_id: str
    """The unique id; it is the transaction's too."""
    broker_name: str
    region_id: str | None
    state: TransactionState
    from_check: bool


@runtime_checkable
class EndTransactionHook(Protocol):
    """After the end of each transaction; a hook of sends may have this too."""

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """The broker was told, or could not be: then it asks."""


@dataclass(slots=True)
class ConsumeHookContext:
    """One call of a listener."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    consumed: bool = False
    error: BaseException | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Around each call of a listener."""

    def before_consume(self, context: ConsumeHookContext) -> None:
        """The listener is about to be called."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """The listener has returned or raised."""


def call_hooks(hooks: Iterable[Callable[[Context], None]], context: Context, kind: str, message_id: str) -> None:
    """Call each of these methods of hooks; one that raises is logged and does no harm."""
    for hook in hooks:
        try:
            hook(context)
        except RAISED_BY_USERS:
            log.exception("a %s hook raised at message %s", kind, message_id)


def hooked(call: Call, hooks: Sequence[ConsumeHook], group: str, now: Callable[[], float]) -> Call:
    """An async listener with hooks around it. `now`: seconds of a clock that never jumps."""
    before, after = [hook.before_consume for hook in hooks], [hook.after_consume for hook in hooks]

    async def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ListenerAnswer:
        message_id = messages[0].message_id
        hook_context = ConsumeHookContext(group, context.queue, messages)
        call_hooks(before, hook_context, "consume", message_id)
        start = now()
        try:
            answer: ListenerAnswer = await call(messages, context)
            hook_context.consumed = consumed(answer)
            return answer
        except Exception as error:
            hook_context.error = error
            raise
        finally:
            hook_context.elapsed_ms = (now() - start) * 1000
            call_hooks(after, hook_context, "consume", message_id)

    return listener
