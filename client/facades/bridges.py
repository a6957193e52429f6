"""Between a client and its engine: on the same loop under trio, on another thread's under asyncio and for plain
threads.

The public classes are written once against `Bridge`. There is one for each way of waiting: `trio_bridge`,
`asyncio_bridge`, `thread_bridge`. What `Bridge` does by itself is right on every event loop. Where an `async def` of a
bridge awaits under an event loop, the bridge for threads blocks instead, so that it never suspends (see `coroutines`).

Java: none
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from rocketlet.client.consuming.consume_job import Call, Finished
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.pulled_queue import MessageBuffer
from rocketlet.client.errors import TooManyInFlight
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_result import SendResult

if TYPE_CHECKING:
    from rocketlet.client.sending.producer import ProducerEngine

Result = TypeVar("Result")
Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class SendPort(Protocol):
    """Where the users of a producer submit their sends."""

    def make_room(self) -> None:
        """Wait until fewer than `max_in_flight` are in flight, or raise TooManyInFlight where waiting is impossible."""

    def submit(self, send: Send) -> None:
        """Submit a send. Raises ClientClosed, EngineFailed."""

    async def sent(self, send: Send) -> SendResult:
        """Submit a send, and wait for the result."""

    def close(self) -> None:
        """Accept no more sends."""


class Bridge(Protocol):
    """How a client calls its engine, and the engine calls the user."""

    async def start(self, run: Callable[..., Awaitable[None]], name: str) -> None:
        """Start the engine. Raises what keeps it from starting."""

    async def stop(self, error: BaseException | None) -> None:
        """Shut the engine down in order; `error` is what ended the user's block. Raises what the engine died of."""

    async def release(self) -> None:
        """Give back what was taken for an engine that was not started."""

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        """Run one of the engine's functions on its loop."""

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a plain function on the engine's loop, before this returns or soon after."""

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        """A user's function in a form that the engine can call on its own loop; it runs where user code may run."""

    async def wait_for(self, send: Send) -> None:
        """Wait until a send is done."""

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        """Wait until the buffer should be looked at again; False if the time was up first."""

    def time(self) -> float:
        """Seconds of the clock that the user waits by."""

    def user_function(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A user's function, plain or async, in a form that can be awaited where user code runs."""
        return function

    def wrapped(self, function: Callable[..., Any], wrapper: Wrapper) -> Callable[..., Any]:
        """A user's function wrapped in an async one with the same parameters."""
        return wrapper(function)

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """The same in a form that the engine can await on its own loop."""

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        """The workers that run listeners."""

    def send_port(self, engine: ProducerEngine) -> SendPort:
        """Where sends are submitted."""
        return LoopPort(self, engine)


class LoopPort:
    """The sends of a producer in an event loop. A plain function cannot wait there, so `make_room` raises."""

    def __init__(self, bridge: Bridge, engine: ProducerEngine) -> None:
        self._bridge = bridge
        self._pipeline = engine.pipeline
        self._max_in_flight = engine.config.max_in_flight

    def make_room(self) -> None:
        if len(self._pipeline.in_flight_sends) >= self._max_in_flight:
            raise TooManyInFlight(
                f"{self._max_in_flight} sends are in flight", advice="await some of them first, or raise max_in_flight"
            )

    def submit(self, send: Send) -> None:
        self._bridge.call_soon(self._pipeline.submit, send)

    async def sent(self, send: Send) -> SendResult:
        self.submit(send)
        if not send.done:
            await self._bridge.wait_for(send)
        return send.outcome()

    def close(self) -> None:
        """Nobody waits here."""
