"""One trio loop in a thread of its own, for clients that live in plain threads or under asyncio.

All such clients of a process share it: it starts with the first and ends with the last. A thread's calls go through a
deque, and one call into the loop serves all that are in it by then. The loop is woken for it in its turn among the
threads that it has woken (`wake_queue`). User callbacks run in one more thread, so that they may call the client.

Ctrl-C raises in the main thread between any two steps, for example after a flag that the loop was woken and before it
is. A second Ctrl-C may hit whatever would put that right. So the loop looks by itself each second, and what was
missed is only late.

A process that forks must create its clients after the fork: a loop does not survive one, and an error says so.

Java: none; a JVM client owns a dozen thread pools
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import trio

from rocketlet.client.errors import RAISED_BY_USERS, ClientClosed, EngineFailed, InvalidUse
from rocketlet.client.facades.bridges import innermost
from rocketlet.client.wake_queue import WakeQueue

log = logging.getLogger("rocketlet.client.engine_thread")

Result = TypeVar("Result")

_MAX_WAIT_AT_EXIT = 5.0
_LOOK_EVERY = 1.0


class EngineThread:
    """The loop. Get it by `acquire`, and give it back by `release`."""

    _shared: EngineThread | None = None
    _sharing = threading.Lock()

    @classmethod
    def acquire(cls) -> EngineThread:
        """The process's loop, started if it is not running."""
        with cls._sharing:
            shared = cls._shared
            if shared is None or shared._pid != os.getpid() or not shared._thread.is_alive():
                shared = cls._shared = EngineThread()
            shared._users += 1
            return shared

    def release(self) -> None:
        """Release the loop; the last client to do so waits for it to end."""
        with self._sharing:
            self._users -= 1
            if self._users:
                return
            if EngineThread._shared is self:
                EngineThread._shared = None
        self.post(lambda: self._stop.set())
        self._callbacks.put(None)
        self._thread.join()

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._users = 0
        self._jobs: deque[Callable[[], object]] = deque()
        self._posted = False
        self._ended = False
        self.looks: set[Callable[[], object]] = set()
        """Called on the loop each second, whether or not anybody posted something."""
        self.wakes = WakeQueue()
        self._callbacks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._callback_thread: threading.Thread | None = None
        ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, ready), name="rocketlet-client", daemon=True)
        self._thread.start()
        ready.wait()

    async def _main(self, ready: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.now = trio.lowlevel.current_clock().current_time
        self._stop = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._look_often)
                ready.set()
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            # First the flag, then the jobs: a job runs here, or else its thread sees the flag.
            self._ended = True
            self._run_jobs()

    async def _look_often(self) -> None:
        while True:
            await trio.sleep(_LOOK_EVERY)
            self.wakes.next()
            self._run_jobs()
            for look in tuple(self.looks):
                look()

    # ---- from other threads

    def post(self, job: Callable[[], object]) -> None:
        """Call a plain function on the loop, soon. Raises ClientClosed once the loop has ended."""
        self._jobs.append(job)
        if self._ended:
            raise ClientClosed("the client's loop has ended")
        if not self._posted:
            self._posted = True
            if self.wakes.in_main_thread():
                self._wake_loop()
            else:
                self.wakes.add(self._wake_loop_in_turn)

    def _wake_loop(self) -> None:
        with suppress(trio.RunFinishedError):  # the jobs have run then
            self._token.run_sync_soon(self._run_jobs)

    def _wake_loop_in_turn(self) -> None:
        self._wake_loop()
        self.wakes.next()

    def _run_jobs(self) -> None:
        # First the flag, then the jobs: a job that comes in between runs now, and one more call finds nothing to do.
        self._posted = False
        jobs = self._jobs
        while jobs:
            jobs.popleft()()

    def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        """Run an async function on the loop, wait for it in this thread, and give back what it returns or raises."""
        self.check_thread()
        outcome: SimpleQueue[tuple[Result, BaseException | None]] = SimpleQueue()
        scope = self.spawn(lambda result, error: outcome.put((result, error)), function, *args)
        try:
            result, error = outcome.get()
        except BaseException:  # KeyboardInterrupt: do not leave the call behind
            self.post(scope.cancel)
            raise
        if error is not None:
            raise error
        return result

    def check_thread(self) -> None:
        """Raises InvalidUse in the loop's own thread, which would wait for itself, and in a forked process."""
        if threading.get_ident() == self._thread.ident:
            raise InvalidUse(
                "a blocking call of the client from its own loop would wait forever",
                advice="make it from another thread, or use the Async classes",
            )
        self.check_process()

    def check_process(self) -> None:
        """Raises InvalidUse in a forked process, where the loop does not run and nothing would end a wait."""
        if self._pid != os.getpid():
            raise InvalidUse("this client was made before a fork", advice="make clients in the process that uses them")

    def spawn(
        self, done: Callable[[Any, BaseException | None], object], function: Callable[..., Awaitable[Any]], *args: Any
    ) -> trio.CancelScope:
        """Run an async function on the loop, in this scope; `done` is called there with its result or its error."""
        scope = trio.CancelScope()

        async def host() -> None:
            result: Any = None
            failure: BaseException | None = ClientClosed("the client has ended")
            try:
                with scope:
                    result = await function(*args)
                    failure = None
            except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits for it
                failure = innermost(error)
            finally:
                done(result, failure)

        def start() -> None:
            if self._ended:
                done(None, ClientClosed("the client has ended"))
            else:
                self._nursery.start_soon(host)

        self.post(start)
        return scope

    def call_back(self, callback: Callable[[], object]) -> None:
        """Call a user's function in the callback thread."""
        if self._callback_thread is None:
            self._callback_thread = threading.Thread(
                target=self._run_callbacks, name="rocketlet-callbacks", daemon=True
            )
            self._callback_thread.start()
        self._callbacks.put(callback)

    def _run_callbacks(self) -> None:
        while (callback := self._callbacks.get()) is not None:
            try:
                callback()
            except RAISED_BY_USERS:
                log.exception("a callback raised")


class HostedRun:
    """The run of one client on the loop: start, stop, and whether it has died."""

    def __init__(self, engine: EngineThread, name: str) -> None:
        self._engine = engine
        self._name = name
        self._stop = trio.Event()
        self._ended = threading.Event()
        self.failure: BaseException | None = None

    def start(self, run: Callable[..., Awaitable[None]]) -> None:
        """Start `run(stop, task_status=...)`; raises what keeps it from starting."""
        try:
            self._engine.call(self.begin, run)
        except KeyboardInterrupt:
            self.abandon()
            raise

    async def begin(self, run: Callable[..., Awaitable[None]]) -> None:
        """The same, on the loop."""
        await self._engine._nursery.start(self._live, run)
        if not self._stop.is_set():
            _open_runs.add(self)

    def abandon(self) -> None:
        """Nobody waits for its start any more: if it has started all the same, let it shut down."""
        self._engine.post(self._end_soon)

    def _end_soon(self) -> None:
        _open_runs.discard(self)
        self._stop.set()

    async def _live(
        self, run: Callable[..., Awaitable[None]], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        started = _Started(task_status)
        try:
            await run(self._stop, task_status=started)
        except Exception as error:
            if not started.done:
                raise innermost(error) from error
            self.failure = innermost(error)
            log.critical("%s has died: %s", self._name, self.failure, exc_info=error)
        finally:
            self._ended.set()

    def check(self) -> None:
        """Raises EngineFailed if it has died."""
        if self.failure is not None:
            raise EngineFailed(f"{self._name} has died: {self.failure!r}") from self.failure

    def stop(self, timeout: float | None = None) -> None:
        """Shut it down in order and wait. Raises EngineFailed if it had died instead."""
        _open_runs.discard(self)
        self._engine.check_thread()
        self._engine.post(self._stop.set)
        self._ended.wait(timeout)
        self.check()


class _Started:
    """A task status that remembers whether `started` was called."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status = status
        self.done = False

    def started(self, value: None = None) -> None:
        self.done = True
        self._status.started()


def _start_anew() -> None:
    # Another thread may have held it at the fork, and no such thread is here to release it.
    EngineThread._sharing = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_start_anew)

_open_runs: set[HostedRun] = set()


@atexit.register
def _close_open_clients() -> None:
    """A program that ends without closing its clients still gets a moment to send what is in flight."""
    for run in list(_open_runs):
        try:
            run.stop(_MAX_WAIT_AT_EXIT)
        except (EngineFailed, ClientClosed, InvalidUse) as error:
            log.info("a client was left open and could not be ended: %s", error)
