"""Hooks of users around sending and consuming: for tracing, counting, vetoes.

All are plain functions called where the client works: before a send in the sender's thread, after it on the engine's
loop, around consumption where the listener runs. They must not wait. One that raises before a send vetoes it; any other
is logged and does no harm.

Java: client/hook/SendMessageHook.java, ConsumeMessageHook.java, CheckForbiddenHook.java
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from client.errors import ClientError
from client.send_result import SendResult
from common.message import Message, MessageQueue, ReceivedMessage


@dataclass(slots=True)
class SendContext:
    """One send, from before its first try until after its last. `notes` is for the hooks themselves."""

    group: str
    message: Message
    message_id: str
    born: int
    result: SendResult | None = None
    error: ClientError | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """Around each send."""

    def before_send(self, context: SendContext) -> None:
        """The message is checked and has its id. An exception is raised to the sender, and nothing is sent."""

    def after_send(self, context: SendContext) -> None:
        """There is a result or an error. Not for one-way sends."""


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
        """About to be called."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """It has returned or raised."""
