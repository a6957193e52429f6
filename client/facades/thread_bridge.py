"""Clients in plain threads: the engine on the process's engine thread, users in any number of threads.

A send is prepared in its caller's thread. A thread that sends alone then writes and reads its own socket
(`direct_line`). Otherwise the send goes to the engine's loop through a deque, together with those of other threads at
that moment, and the thread sleeps until the answer is there (`wake_queue`).

Java: none; a JVM client owns its threads
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import trio

from rocketlet.client.consuming.consume_job import Call, Finished
from rocketlet.client.consuming.consume_workers import ThreadWorkers, Workers
from rocketlet.client.consuming.pulled_queue import MessageBuffer
from rocketlet.client.coroutines import called, completed
from rocketlet.client.errors import ClientClosed, InvalidUse
from rocketlet.client.facades.bridges import Bridge, SendPort
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.sending.direct_line import DirectPath
from rocketlet.client.sending.send import Answer, Send
from rocketlet.client.sending.send_result import SendResult

if TYPE_CHECKING:
    from rocketlet.client.sending.producer import ProducerEngine

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_USER_CALLS = 4  # of the engine to its user, such as a checker of transactions, at work at once
_STILL_ALIVE = 1.0  # seconds after which a thread that waits without time-out checks that the engine is alive


def blocking(function: Callable[Parameters, Coroutine[Any, Any, Result]]) -> Callable[Parameters, Result]:
    """An async function that never suspends, as a plain one."""

    @wraps(function)
    def call(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
        return completed(function(*args, **named))

    return call


class ThreadBridge(Bridge):
    """User code in threads, the engine on its own thread. No `async def` here ever suspends."""

    def __init__(self, name: str) -> None:
        self.thread = EngineThread.acquire()
        self.wakes = self.thread.wakes
        self.run = HostedRun(self.thread, name)
        self._port: ThreadPort | None = None

    # ---- life

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        self.run.start(run)

    async def stop(self, error: BaseException | None) -> None:
        self.run.stop()

    async def release(self) -> None:
        if self._port is not None:
            self._port.close()
        self.thread.release()

    # ---- to the engine

    async def call(self, function: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        self.run.check()
        return self.thread.call(function, *args)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        self.run.check()
        self.thread.call(called, function, *args)

    def post(self, function: Callable[[], object]) -> None:
        self.thread.post(function)

    def send_port(self, engine: ProducerEngine) -> ThreadPort:
        self._port = ThreadPort(self, engine)
        return self._port

    # ---- waiting

    def check_loop(self) -> None:
        """Any thread may call."""

    def check_wait(self) -> None:
        self.thread.check_process()

    async def wait_for(self, send: Send) -> None:
        raise InvalidUse("a send of a blocking producer cannot be awaited", advice="use result(), or an AsyncProducer")

    async def wait_for_message(self, buffer: MessageBuffer, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        lock = allocate_lock()
        lock.acquire()
        waker = lock.release
        buffer.wakers.append(waker)
        try:
            while not buffer.batches and not buffer.closed:
                self.thread.check_process()
                self.run.check()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                if lock.acquire(timeout=min(remaining, _STILL_ALIVE)):
                    break
        finally:
            buffer.stop_waiting(waker)
        return True

    def time(self) -> float:
        return time.monotonic()

    # ---- to the user

    def callback(self, function: Callable[[], object]) -> Callable[[], object]:
        # In the callback thread, so that it may send and wait.
        return partial(self.thread.call_back, function)

    def user_function(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(called, function)

    def listener(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return blocking(function)

    def user_call(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        return partial(trio.to_thread.run_sync, function, limiter=trio.CapacityLimiter(_USER_CALLS))

    def workers(self, call: Call, count: int, finished: Finished, name: str) -> Workers:
        return ThreadWorkers(call, count, finished, self.thread.post, name)


class ThreadPort(SendPort):
    """Where threads submit their sends."""

    def __init__(self, bridge: ThreadBridge, engine: ProducerEngine) -> None:
        super().__init__(bridge, engine)
        self._thread = bridge.thread
        self._run = bridge.run
        # With room for this many, a waiting thread is woken. Few enough that the broker has work while the thread makes
        # the next sends: with half of 1024 they take turns, at half of the rate.
        self._step = max(1, min(128, self._max_in_flight // 4))
        self._handed: deque[Send] = deque()
        self._posted = False
        self._closed = False
        self._thread.looks.add(self._take)  # where Ctrl-C came between `_posted` and the post, or a post was refused
        self._for_room: deque[LockType] = deque()
        self._pipeline.settled = self._settled
        self._direct = DirectPath(engine.session, engine.config, self._thread.now, self._continue_send)

    # ---- in threads

    async def sent(self, send: Send) -> SendResult:
        # In this thread itself if it sends alone, otherwise with the sends of the others.
        self._thread.check_thread()
        self._run.check()
        alone = not self._handed and not self._pipeline.in_flight_sends
        if not (alone and self._direct.usable and self._direct.send(send)):
            self.submit(send)
        return send.wait(self._thread.wakes)

    def _continue_send(self, send: Send, answer: Answer) -> None:
        self._run.check()
        self._thread.post(partial(self._pipeline.continue_send, send, answer))

    def submit(self, send: Send) -> None:
        self._handed.append(send)
        if self._closed:  # looked at after that: what is handed in before is taken by `close`
            raise ClientClosed("the producer has ended")
        if not self._posted:
            self._posted = True
            self._run.check()
            self._thread.post(self._take)

    def make_room(self) -> None:
        self._thread.check_process()
        while self._is_full():
            self._run.check()
            lock = allocate_lock()
            lock.acquire()
            self._for_room.append(lock)
            if self._is_full():
                lock.acquire()

    def _is_full(self) -> bool:
        pipeline = self._pipeline
        in_flight = len(pipeline.in_flight_sends) + len(self._handed)
        return in_flight >= self._max_in_flight or len(pipeline.waiting_sends) > 0

    def close(self) -> None:
        """Accept no more sends; threads that wait for room see that."""
        self._closed = True
        self._thread.looks.discard(self._take)
        self._thread.post(self._take)
        self._direct.close()
        while self._for_room:
            self._for_room.popleft().release()

    # ---- on the loop

    def _take(self) -> None:
        self._posted = False
        self._pipeline.submit_all(self._handed)

    def _settled(self) -> None:
        room = self._max_in_flight - len(self._pipeline.in_flight_sends)
        if self._for_room and room >= self._step and not self._pipeline.waiting_sends:
            while self._for_room:
                self._for_room.popleft().release()
