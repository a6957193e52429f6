"""`PendingSend`: what the user of a client holds of a send that was begun.

A plain thread asks for `result()`, which waits; a task awaits it, under trio or asyncio; callbacks are for both. A send
that nobody holds while it is in flight, which is every call of `send`, has no `PendingSend`.

Java: client/producer/SendCallback.java
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from rocketlet.client.errors import ClientError
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_result import SendResult
from rocketlet.client.validators import check_seconds


class PendingSend:
    """The future of a send that may still be in flight."""

    __slots__ = ("_bridge", "_send")

    def __init__(self, send: Send, bridge: Bridge) -> None:
        self._send = send
        self._bridge = bridge

    @property
    def message_id(self) -> str:
        """The unique id of the message; it is the same in all tries."""
        return self._send.message_id

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._send.done

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait in this thread, and return the result or raise the error.

            pending = producer.send_soon(Message("T", b"hi"))
            print(pending.result().queue_offset)

        Not for the thread of an event loop: there, await it.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        send = self._send
        if send.done:
            return send.outcome()
        self._bridge.check_wait()
        return send.wait(self._bridge.wakes, timeout)

    def exception(self) -> ClientError | None:
        """The error of a send that has failed. Requires: done."""
        return self._send.error

    def add_done_callback(self, callback: Callable[[PendingSend], object]) -> None:
        """Call this with the send once it is done; in the engine's callback thread, or under trio in its loop.

        producer.send_soon(message).add_done_callback(lambda sent: print(sent.exception() or sent.result()))
        """
        call = self._bridge.callback(lambda: callback(self))
        if not self._send.when_done(call):
            call()

    def __await__(self) -> Generator[Any, Any, SendResult]:
        if not self._send.done:
            self._bridge.check_loop()
            yield from self._bridge.wait_for(self._send).__await__()
        return self._send.outcome()

    def __repr__(self) -> str:
        send = self._send
        state = "in flight" if not send.done else f"failed: {send.error}" if send.error else "sent"
        return f"<PendingSend {send.message_id} to {send.topic}: {state}>"
