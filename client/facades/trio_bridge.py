"""Clients under trio: engine and user on one loop.

The engine's tasks live in a nursery of the client's `async with` block, so they end with it, a failure of theirs ends
the block, and a test's mock clock drives them.

Java: none
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

import trio
from trio.lowlevel import Abort

from rocketlet.client.consuming.consume_job import Call, Finished
from rocketlet.client.consuming.consume_workers import TaskWorkers, Workers
from rocketlet.client.consuming.pulled_queue import MessageBuffer
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.failures import innermost
from rocketlet.client.sending.send import Send

log = logging.getLogger("rocketlet.client.trio_bridge")

Result = TypeVar("Result")


class TrioBridge(Bridge):
    """Engine and user code on one loop."""

    def __init__(self) -> None:
        self._stop = trio.Event()
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] = trio.open_nursery()

    async def start(self, run: Callable[..., Awaitable[None]], name: str) -> None:
        nursery = await self._nursery_manager.__aenter__()
        try:
            await nursery.start(run, self._stop)
        except BaseException as error:
            await self._exit(error)
            raise

    async def stop(self, error: BaseException | None) -> None:
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
        """There is nothing to give back."""

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        return await function(*args)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        function(*args)

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        def call() -> None:
            try:
                function()
            except Exception:
                log.exception("a callback raised")

        return call

    async def wait_for(self, send: Send) -> None:
        await _sleep_until_woken_by(send.when_done, send.take_back)

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await _sleep_until_woken_by(buffer.wakers.append, buffer.wakers.remove)
            return True
        return False

    def time(self) -> float:
        return trio.current_time()

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        return function

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        return TaskWorkers(call, count, finished)


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
