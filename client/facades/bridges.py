"""Between an awaitable client and its engine: the same loop under trio, another thread's under asyncio.

Under trio the engine's tasks live in a nursery of the client's `async with` block, so they end with it, a failure of
theirs ends the block, and a test's mock clock drives them. The way under asyncio is in `asyncio_bridge`.

Java: none
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

import sniffio
import trio
from trio.lowlevel import Abort

from rocketlet.client.consuming.consume_job import AsyncCall, Finished
from rocketlet.client.consuming.consume_workers import TaskWorkers, Workers
from rocketlet.client.consuming.message_buffer import MessageBuffer
from rocketlet.client.facades.failures import innermost
from rocketlet.client.sending.pending_send import PendingSend

log = logging.getLogger("rocketlet.client.bridges")

Result = TypeVar("Result")


class Bridge(Protocol):
    """How one awaitable client reaches its engine."""

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        """Start the engine. Raises what keeps it from starting."""

    async def stop(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the engine in order. Raises what it died of."""

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        """Run one of the engine's functions on its loop."""

    def post(self, job: Callable[[], object]) -> None:
        """Call a plain function on the engine's loop, soon."""

    def callback(self, function: Callable[[PendingSend], object], pending: PendingSend) -> Callable[[], object]:
        """See Sender."""

    async def wait_for(self, pending: PendingSend) -> None:
        """See Sender."""

    def time(self) -> float:
        """Seconds of the user's loop."""

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        """Wait until somebody should look into the buffer again; False if the time was up first."""

    def user_call(self, function: Callable[..., Awaitable[Result]]) -> Callable[..., Awaitable[Result]]:
        """A user's async function in a form that the engine awaits on its own loop."""

    def workers(self, call: AsyncCall, count: int, finished: Finished) -> Workers:
        """Who runs listeners."""


def bridge() -> Bridge:
    """The one for the event loop that is running."""
    if sniffio.current_async_library() == "trio":
        return TrioBridge()
    from rocketlet.client.facades.asyncio_bridge import AsyncioBridge

    return AsyncioBridge()


class TrioBridge:
    """Engine and user on one loop."""

    def __init__(self) -> None:
        self._stop = trio.Event()
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] = trio.open_nursery()

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        nursery = await self._nursery_manager.__aenter__()
        try:
            await nursery.start(run, self._stop)
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise

    async def stop(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await self._leave(kind, error, trace)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._nursery_manager.__aexit__(kind, error, trace)
        except BaseException as group:
            inner = innermost(group)
            if inner is error:
                return  # it goes on out of the block by itself, and not in a group
            if inner is group:
                raise
            raise inner from group

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        return await function(*args)

    def post(self, job: Callable[[], object]) -> None:
        job()

    def callback(self, function: Callable[[PendingSend], object], pending: PendingSend) -> Callable[[], object]:
        def call() -> None:
            try:
                function(pending)
            except Exception:
                log.exception("a callback raised")

        return call

    async def wait_for(self, pending: PendingSend) -> None:
        # One loop: nothing can have been done since the caller looked.
        wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
        pending._wakers.append(wake)

        def abort(_: Any) -> Abort:
            pending._wakers.remove(wake)
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def time(self) -> float:
        return trio.current_time()

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
        buffer.wakers.append(wake)

        def abort(_: Any) -> Abort:
            buffer.wakers.remove(wake)
            return Abort.SUCCEEDED

        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_task_rescheduled(abort)
            return True
        return False

    def user_call(self, function: Callable[..., Awaitable[Result]]) -> Callable[..., Awaitable[Result]]:
        return function

    def workers(self, call: AsyncCall, count: int, finished: Finished) -> Workers:
        return TaskWorkers(call, count, finished)
