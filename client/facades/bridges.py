"""Between a client and its engine: the same loop under trio, another thread's under asyncio and for plain threads.

The public classes are written once against `Bridge`. There is one for each place where users wait: `trio_bridge`,
`asyncio_bridge`, `thread_bridge`. What an `async def` of a bridge awaits under an event loop, the thread's bridge waits
for by blocking, so that it never suspends (see `coroutines`).

Java: none
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from rocketlet.client.consuming.consume_job import Call, Finished
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.message_buffer import MessageBuffer
from rocketlet.client.errors import TooManyInFlight
from rocketlet.client.sending.pending_send import Send
from rocketlet.client.sending.send_result import SendResult

if TYPE_CHECKING:
    from rocketlet.client.sending.producer import ProducerEngine

Result = TypeVar("Result")
Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class SendPort(Protocol):
    """Where a producer's users hand over their sends."""

    def make_room(self) -> None:
        """Wait until fewer than `max_in_flight` are on their way, or raise TooManyInFlight where nothing can wait."""

    def submit(self, send: Send) -> None:
        """Have it sent. Raises ClientClosed, EngineFailed."""

    async def sent(self, send: Send) -> SendResult:
        """Have it sent, and wait for the result."""

    def close(self) -> None:
        """No more sends."""


class Bridge(Protocol):
    """How one client reaches its engine, and its engine the user."""

    async def start(self, run: Callable[..., Awaitable[None]], name: str) -> None:
        """Start the engine. Raises what keeps it from starting."""

    async def stop(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the engine in order. Raises what it died of."""

    async def release(self) -> None:
        """Give back what was taken for an engine that was not started."""

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        """Run one of the engine's functions on its loop."""

    def tell(self, function: Callable[..., object], *args: Any) -> None:
        """Have a plain function called on the engine's loop: before this returns, or soon."""

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        """A user's function in the form that the engine calls on its own loop; it runs where its user's code may."""

    async def wait_for(self, send: Send) -> None:
        """Wait until a send is done."""

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        """Wait until somebody should look into the buffer again; False if the time was up first."""

    def time(self) -> float:
        """Seconds of the clock that the user waits by."""

    def user_function(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A user's function, plain or async, in a form that is awaited where the user's code runs."""

    def wrapped(self, function: Callable[..., Any], wrapper: Wrapper) -> Callable[..., Any]:
        """A user's function inside of an async one, called as the function itself is."""

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """The same in a form that the engine awaits on its own loop."""

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        """Who runs listeners."""

    def send_port(self, engine: ProducerEngine) -> SendPort:
        """Where sends are handed over."""


class LoopPort:
    """The sends of a producer that lives in an event loop. Nothing here can wait for room, so it raises."""

    def __init__(self, bridge: Bridge, engine: ProducerEngine) -> None:
        self._bridge = bridge
        self._pipeline = engine.pipeline
        self._most = engine.config.max_in_flight

    def make_room(self) -> None:
        if len(self._pipeline.on_their_way) >= self._most:
            raise TooManyInFlight(
                f"{self._most} sends are on their way",
                advice="await some of them first, or raise max_in_flight",
            )

    def submit(self, send: Send) -> None:
        self._bridge.tell(self._pipeline.submit, send)

    async def sent(self, send: Send) -> SendResult:
        self.submit(send)
        if not send.done:
            await self._bridge.wait_for(send)
        return send.outcome()

    def close(self) -> None:
        """Nobody waits here."""
