"""Clients under asyncio: the user's code on asyncio's loop, the engine on the process's engine thread.

Calls go through `EngineThread`; results are collected, and those of one turn take one call into asyncio's loop.
Listeners run as tasks of the user's loop.

Java: none
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from rocketlet.client.consuming.consume_job import Call, ConsumeJob, Finished
from rocketlet.client.consuming.consume_workers import OffLoopWorkers, Workers
from rocketlet.client.consuming.pulled_queue import MessageBuffer
from rocketlet.client.facades.bridges import Bridge, in_another_loop
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.sending.send import Send

log = logging.getLogger("rocketlet.client.asyncio_bridge")

Result = TypeVar("Result")


class AsyncioBridge(Bridge):
    """The user's code on asyncio's loop, the engine on that of its own thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.thread = EngineThread.acquire()
        self.wakes = self.thread.wakes
        self._run = HostedRun(self.thread, name)
        self._back: deque[Callable[[], object]] = deque()
        self._posted = False

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        try:
            await self.call(self._run.begin, run)
        except asyncio.CancelledError:
            self._run.abandon()
            raise

    async def stop(self, error: BaseException | None) -> None:
        await self._loop.run_in_executor(None, self._run.stop)

    async def release(self) -> None:
        await self._loop.run_in_executor(None, self.thread.release)

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        self._run.check()
        self.check_loop()
        future: asyncio.Future[Result] = self._loop.create_future()
        scope = self.thread.spawn(lambda *ended: self.back(partial(_settle, future, *ended)), function, *args)
        try:
            return await future
        except asyncio.CancelledError:
            self.thread.post(scope.cancel)
            raise

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        self._run.check()
        self.thread.post(partial(function, *args) if args else function)

    def post(self, function: Callable[[], object]) -> None:
        self.thread.post(function)

    def back(self, job: Callable[[], object]) -> None:
        """Call a plain function on asyncio's loop, soon; from the engine's thread."""
        self._back.append(job)
        if not self._posted:
            self._posted = True
            try:
                self._loop.call_soon_threadsafe(self._run_posted)
            except RuntimeError as error:
                log.info("the asyncio loop is closed, a result is dropped: %s", error)

    def _run_posted(self) -> None:
        self._posted = False
        back = self._back
        while back:
            back.popleft()()

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        return partial(self.back, super().callback(function))

    def _waker(self) -> tuple[asyncio.Future[None], Callable[[], object]]:
        """A future, and what the engine calls to wake its waiter."""
        future: asyncio.Future[None] = self._loop.create_future()
        return future, partial(self.back, partial(_settle, future, None, None))

    def check_wait(self) -> None:
        self.thread.check_process()

    def check_loop(self) -> None:
        try:
            is_ours = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no loop of asyncio runs in this thread
            is_ours = False
        if not is_ours:
            raise in_another_loop()

    async def wait_for(self, send: Send) -> None:
        future, wake = self._waker()
        if send.when_done(wake):
            try:
                await future
            except asyncio.CancelledError:
                send.take_back(wake)
                raise

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        future, wake = self._waker()
        buffer.wakers.append(wake)
        try:
            if not buffer.batches and not buffer.closed:
                await asyncio.wait_for(future, None if seconds == math.inf else seconds)
        except TimeoutError:
            return False
        finally:
            buffer.stop_waiting(wake)
        return True

    def time(self) -> float:
        return self._loop.time()

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any) -> Any:
            return await function(*args)

        async def call(*args: Any) -> Any:
            finished = trio.Event()
            future = asyncio.run_coroutine_threadsafe(run(*args), self._loop)
            future.add_done_callback(lambda _: self.thread.post(finished.set))
            try:
                await finished.wait()
            except trio.Cancelled:  # the client ends, and what it called is not to outlive it
                future.cancel()
                raise
            return future.result()

        return call

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        return AsyncioWorkers(self, call, count, finished)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled meanwhile
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class AsyncioWorkers(OffLoopWorkers):
    """Runs listeners as tasks on the user's asyncio loop, a limited number at once."""

    def __init__(self, bridge: AsyncioBridge, call: Call, count: int, finished: Finished) -> None:
        super().__init__(call, count, finished, bridge.thread.post)
        self._bridge = bridge
        self._running: set[asyncio.Task[None]] = set()

    # ---- on the engine's loop

    def submit(self, jobs: Sequence[ConsumeJob]) -> None:
        super().submit(jobs)
        self._bridge.back(self._start_some)

    # ---- on asyncio's

    def _start_some(self) -> None:
        while self._jobs and len(self._running) < self._count:
            task = asyncio.get_running_loop().create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def _work(self) -> None:
        while (job := self._next_job()) is not None:
            await job.run_in_task(self._call, self._now)
            self._return_results(job)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_some()
