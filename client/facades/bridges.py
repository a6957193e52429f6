"""Between a client and its engine: how one calls the other, and how users wait.

The public classes are written once against `Bridge`. Under trio there is no gap to bridge: engine and user share one
loop, and `Bridge` by itself calls straight on. `AsyncioBridge` and `ThreadBridge` cross over to the engine's thread and
back. Where an `async def` awaits under an event loop, the bridge for threads blocks instead, so that it never suspends.

Java: none
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from trio.lowlevel import Abort

from rocketlet.client.consuming.consume_job import Call, Finished
from rocketlet.client.consuming.consume_workers import TaskWorkers, Workers
from rocketlet.client.consuming.pulled_queue import MessageBuffer
from rocketlet.client.errors import RAISED_BY_USERS, InvalidUse, TooManyInFlight
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_result import SendResult
from rocketlet.client.wake_queue import WakeQueue

if TYPE_CHECKING:
    from rocketlet.client.sending.producer import ProducerEngine

log = logging.getLogger("rocketlet.client.bridges")

Result = TypeVar("Result")


class Bridge:
    """How a client calls its engine, and the engine calls the user: here, on one trio loop.

    The engine's tasks live in a nursery of the client's `async with` block, so they end with it, a failure of theirs
    ends the block, and a test's mock clock drives them.
    """

    def __init__(self, name: str) -> None:
        self.wakes = WakeQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] = trio.open_nursery()

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        """Start the engine. Raises what keeps it from starting."""
        nursery = await self._nursery_manager.__aenter__()
        try:
            await nursery.start(run, self._stop)
        except BaseException as error:
            await self._exit(error)
            raise

    async def stop(self, error: BaseException | None) -> None:
        """Shut the engine down in order; `error` is what ended the user's block. Raises what the engine died of."""
        self._stop.set()
        await self._exit(error)

    async def _exit(self, error: BaseException | None) -> None:
        trace = error.__traceback__ if error is not None else None
        try:
            await self._nursery_manager.__aexit__(type(error) if error is not None else None, error, trace)
        except BaseException as group:
            inner = innermost(group)
            if inner is error:
                return  # it leaves the block as itself, not in a group
            if inner is group:
                raise
            raise inner from group

    async def release(self) -> None:
        """Give back what was taken for the engine, which has stopped or was never started."""

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        """Run one of the engine's functions on its loop."""
        self.check_loop()
        return await function(*args)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a plain function on the engine's loop, before this returns or soon after."""
        self.check_loop()
        function(*args)

    def post(self, function: Callable[[], object]) -> None:
        """The same without waiting for it, and without looking whether the engine has died."""
        function()

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        """A user's function in a form that the engine can call on its own loop; it runs where user code may run."""

        def call() -> None:
            try:
                function()
            except RAISED_BY_USERS:
                log.exception("a callback raised")

        return call

    def check_wait(self) -> None:
        """Raises InvalidUse in a forked process, where the engine does not run and nothing would end a wait."""

    def check_loop(self) -> None:
        """Raises InvalidUse in another event loop or thread than that of the client's block. Nothing would end a wait
        there, and under trio an engine that is called from there dies of it."""
        try:
            is_ours = trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:  # trio does not run in this thread
            is_ours = False
        if not is_ours:
            raise in_another_loop()

    async def wait_for(self, send: Send) -> None:
        """Wait until a send is done."""
        await _sleep_until_woken_by(send.when_done, send.take_back)

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        """Wait until the buffer should be looked at again; False if the time was up first."""
        with trio.move_on_after(seconds):
            await _sleep_until_woken_by(buffer.wakers.append, buffer.wakers.remove)
            return True
        return False

    def time(self) -> float:
        """Seconds of the clock that the user waits by."""
        return trio.current_time()

    def user_function(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A user's function, plain or async, in a form that can be awaited where user code runs."""
        return function

    def listener(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """An async function in the form that workers call."""
        return function

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """A user's function in a form that the engine can await on its own loop."""
        return function

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        """The workers that run listeners."""
        return TaskWorkers(call, count, finished)

    def send_port(self, engine: ProducerEngine) -> SendPort:
        """Where sends are submitted."""
        return SendPort(self, engine)


async def _sleep_until_woken_by(
    add: Callable[[Callable[[], object]], object], remove: Callable[[Callable[[], object]], object]
) -> None:
    """Sleep until a waker is called. One loop: nothing can have happened since the caller looked."""
    wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
    add(wake)

    def abort(_: Any) -> Abort:
        remove(wake)
        return Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


class SendPort:
    """Where the users of a producer submit their sends."""

    def __init__(self, bridge: Bridge, engine: ProducerEngine) -> None:
        self._bridge = bridge
        self._pipeline = engine.pipeline
        self._max_in_flight = engine.config.max_in_flight

    def make_room(self) -> None:
        """Wait until fewer than `max_in_flight` are in flight; in an event loop, where a plain function cannot wait,
        raise TooManyInFlight."""
        if len(self._pipeline.in_flight_sends) >= self._max_in_flight:
            raise TooManyInFlight(
                f"{self._max_in_flight} sends are in flight", advice="await some of them first, or raise max_in_flight"
            )

    def submit(self, send: Send) -> None:
        """Submit a send. Raises ClientClosed, EngineFailed."""
        self._bridge.call_soon(self._pipeline.submit, send)

    async def sent(self, send: Send) -> SendResult:
        """Submit a send, and wait for the result."""
        self._bridge.check_loop()
        self.submit(send)
        if not send.done:
            await self._bridge.wait_for(send)
        return send.outcome()


def in_another_loop() -> InvalidUse:
    """The error of a call from elsewhere than the event loop in which the client's block runs."""
    return InvalidUse(
        "this client belongs to another event loop or thread",
        advice="call it from where its async with block runs, or make another client here",
    )


def innermost(error: BaseException) -> BaseException:
    """The one error inside of nested groups of one, in which nurseries wrap it; a group of several stays a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
