"""Awaitable clients under asyncio: the user on asyncio's loop, the engine on the process's engine thread.

Calls go over by `EngineThread`; what comes back gathers, and all of one turn takes one call into asyncio's loop.
Listeners run as tasks of the user's loop.

Java: none
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import trio

from rocketlet.client.consuming.consume_job import AsyncCall, ConsumeJob, Finished
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.message_buffer import MessageBuffer
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.sending.pending_send import PendingSend

log = logging.getLogger("rocketlet.client.asyncio_bridge")

Result = TypeVar("Result")


class AsyncioBridge:
    """The user on asyncio's loop, the engine on its own thread's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine = EngineThread.acquire()
        self._run = HostedRun(self._engine, "the client")
        self._tasks: set[asyncio.Task[Any]] = set()  # held here, for asyncio holds tasks by weak references only
        self._back: deque[Callable[[], object]] = deque()
        self._posted = False

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        try:
            await self._loop.run_in_executor(None, self._run.start, run)
        except BaseException:
            await self._loop.run_in_executor(None, self._engine.release)
            raise

    async def stop(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._loop.run_in_executor(None, self._run.stop)
        finally:
            await self._loop.run_in_executor(None, self._engine.release)

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        self._run.check()
        future: asyncio.Future[Result] = self._loop.create_future()
        scope = trio.CancelScope()
        self._engine.spawn(
            function, args, lambda result, error: self.back(partial(_settle, future, result, error)), scope
        )
        try:
            return await future
        except asyncio.CancelledError:
            self._engine.post(scope.cancel)
            raise

    def post(self, job: Callable[[], object]) -> None:
        self._run.check()
        self._engine.post(job)

    def back(self, job: Callable[[], object]) -> None:
        """Call a plain function on asyncio's loop, soon; from the engine's thread."""
        self._back.append(job)
        if not self._posted:
            self._posted = True
            try:
                self._loop.call_soon_threadsafe(self._run_back)
            except RuntimeError as error:
                log.info("the asyncio loop is closed, nobody waits any more: %s", error)

    def _run_back(self) -> None:
        self._posted = False
        back = self._back
        while back:
            back.popleft()()

    def callback(self, function: Callable[[PendingSend], object], pending: PendingSend) -> Callable[[], object]:
        return partial(self.back, partial(function, pending))

    async def wait_for(self, pending: PendingSend) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        wake = partial(self.back, partial(_settle, future, None, None))
        pending._wakers.append(wake)
        if pending.done:
            return
        try:
            await future
        except asyncio.CancelledError:
            try:
                pending._wakers.remove(wake)
            except ValueError:
                pass  # it has been called
            raise

    def time(self) -> float:
        return self._loop.time()

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        future: asyncio.Future[None] = self._loop.create_future()
        wake = partial(self.back, partial(_settle, future, None, None))
        buffer.wakers.append(wake)
        try:
            if not buffer.batches and not buffer.closed:
                await asyncio.wait_for(future, None if seconds == math.inf else seconds)
        except TimeoutError:
            return False
        finally:
            buffer.stop_waiting(wake)
        return True

    def user_call(self, function: Callable[..., Awaitable[Result]]) -> Callable[..., Awaitable[Result]]:
        async def call(*args: Any) -> Result:
            finished = trio.Event()
            outcomes: list[asyncio.Task[Result]] = []

            async def run() -> Result:
                return await function(*args)

            def ended(task: asyncio.Task[Result]) -> None:
                outcomes.append(task)
                self._engine.post(finished.set)

            def start() -> None:
                task = self._loop.create_task(run())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                task.add_done_callback(ended)

            self.back(start)
            await finished.wait()
            return outcomes[0].result()

        return call

    def workers(self, call: AsyncCall, count: int, finished: Finished) -> Workers:
        return AsyncioWorkers(self, call, count, finished)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled meanwhile
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class AsyncioWorkers:
    """Runs listeners as tasks of the user's asyncio loop, so many at once."""

    def __init__(self, bridge: AsyncioBridge, call: AsyncCall, count: int, finished: Finished) -> None:
        self._bridge = bridge
        self._call = call
        self._count = count
        self._finished = finished
        self._jobs: deque[ConsumeJob] = deque()
        self._results: deque[ConsumeJob] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._posted = False
        self._out = 0
        self._drained = trio.lowlevel.ParkingLot()
        self._now: Callable[[], float] = lambda: 0.0

    # ---- on the engine's loop

    def submit(self, jobs: Iterable[ConsumeJob]) -> None:
        before = len(self._jobs)
        self._jobs.extend(jobs)
        self._out += len(self._jobs) - before
        self._bridge.back(self._start_some)

    def collect(self) -> None:
        self._posted = False
        results = self._results
        jobs = [results.popleft() for _ in range(len(results))]
        self._out -= len(jobs)
        self._finished(jobs)
        if not self._out:
            self._drained.unpark_all()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._now = trio.lowlevel.current_clock().current_time
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self._jobs.clear()

    def abandon(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                break
            job.expired = True
            self._results.append(job)
        self.collect()

    async def drain(self) -> None:
        while self._out:
            await self._drained.park()

    # ---- on asyncio's

    def _start_some(self) -> None:
        while self._jobs and len(self._running) < self._count:
            task = asyncio.get_running_loop().create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def _work(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            await job.run_async(self._call, self._now)
            self._results.append(job)
            if not self._posted:
                self._posted = True
                self._bridge.post(self.collect)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_some()
