"""Workers that run the listeners: tasks for async functions, threads for plain ones.

Both take jobs in the order in which they were submitted and hand them back to `finished`, on the engine's loop.

Threads do not pass each job through a lock. All take from one deque (`popleft` is atomic), and only one that finds it
empty sleeps on a lock of its own. A submission wakes one thread if all sleep. While jobs wait, the loop looks every
2 ms how many were taken, and if the threads awake took fewer than four each, doubles their number: a listener that
takes no time keeps one thread busy, without a switch of threads for each message, and one that waits for something has
all twenty at work within 10 ms. Results come back the same way: into a deque, with one call into the loop for all that
gather until it gets there.

Java: ConsumeMessageConcurrentlyService.consumeExecutor
"""

from __future__ import annotations

import threading
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from rocketlet.client.consuming.consume_job import Call, ConsumeJob, Finished
from rocketlet.client.wakeup import Wakeup

Post: TypeAlias = Callable[[Callable[[], object]], object]

_LOOK_EVERY = 0.002
_FAST = 4  # jobs that one thread takes between two looks, at least, if more threads would not help


class Workers:
    """Runs jobs. Methods are called on the engine's loop, but for the two that say otherwise."""

    def __init__(self, call: Call, count: int, finished: Finished) -> None:
        self._call = call
        self._count = count
        self._finished = finished
        self._jobs: deque[ConsumeJob] = deque()
        self._results: deque[ConsumeJob] = deque()
        self._outstanding = 0
        self._drained = trio.lowlevel.ParkingLot()
        self._now: Callable[[], float]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        self._now = trio.lowlevel.current_clock().current_time
        task_status.started()
        try:
            await self._serve()
        finally:
            while self._next_job() is not None:
                self._outstanding -= 1
            self._drained.unpark_all()

    async def _serve(self) -> None:
        await trio.sleep_forever()

    def submit(self, jobs: Sequence[ConsumeJob]) -> None:
        """Run these jobs."""
        self._outstanding += len(jobs)
        self._jobs.extend(jobs)

    def collect(self) -> None:
        """Hand back, now, what is finished and has not been handed back yet."""
        results = self._results
        self._hand_back([results.popleft() for _ in range(len(results))])

    def _hand_back(self, jobs: list[ConsumeJob]) -> None:
        self._outstanding -= len(jobs)
        self._finished(jobs)
        if not self._outstanding:
            self._drained.unpark_all()

    def abandon(self) -> None:
        """Hand back, as expired, the jobs that have not begun: their messages are redelivered elsewhere."""
        while (job := self._next_job()) is not None:
            job.expired = True
            self._results.append(job)
        self.collect()

    async def drain(self) -> None:
        """Wait until every submitted job has been handed back."""
        while self._outstanding:
            await self._drained.park()

    def _next_job(self) -> ConsumeJob | None:
        """From any thread."""
        try:
            return self._jobs.popleft()
        except IndexError:
            return None


class TaskWorkers(Workers):
    """Tasks on the engine's own loop, for async listeners under trio. They hand back each job at its end."""

    def __init__(self, call: Call, count: int, finished: Finished) -> None:
        super().__init__(call, count, finished)
        self._idle = trio.lowlevel.ParkingLot()

    def submit(self, jobs: Sequence[ConsumeJob]) -> None:
        super().submit(jobs)
        self._idle.unpark(count=len(jobs))

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self._count):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            while not self._jobs:
                await self._idle.park()
            job = self._jobs.popleft()
            try:
                await job.run_in_task(self._call, self._now)
            except BaseException:
                job.expired = True  # cancelled: whether it was consumed is not known
                raise
            finally:
                self._hand_back([job])


class OffLoopWorkers(Workers):
    """Workers that are not on the engine's loop, which they reach by `post`."""

    def __init__(self, call: Call, count: int, finished: Finished, post: Post) -> None:
        super().__init__(call, count, finished)
        self._post = post
        self._posted = False

    def collect(self) -> None:
        self._posted = False
        super().collect()

    def _return_results(self, job: ConsumeJob) -> None:
        """From any thread."""
        self._results.append(job)
        if not self._posted:
            self._posted = True
            self._post(self.collect)


class ThreadWorkers(OffLoopWorkers):
    """A number of threads, started as needed; for listeners that are plain functions."""

    def __init__(self, call: Call, count: int, finished: Finished, post: Post, name: str) -> None:
        super().__init__(call, count, finished, post)
        self._name = name
        self._idle: list[LockType] = []
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._started_jobs = 0  # jobs begun, nearly: threads count it without a lock
        self._backlog = Wakeup()

    # ---- on the loop

    def submit(self, jobs: Sequence[ConsumeJob]) -> None:
        super().submit(jobs)
        if self._jobs:
            all_sleep = len(self._idle) == len(self._threads)
            if all_sleep:
                self._wake_one()
            if not all_sleep or len(self._jobs) > 1:
                self._backlog.set()

    def _wake_one(self) -> None:
        try:
            lock = self._idle.pop()
        except IndexError:
            if len(self._threads) < self._count:
                self._start_thread()
            return
        lock.release()

    def _start_thread(self) -> None:
        number = len(self._threads) + 1
        thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    async def _serve(self) -> None:
        try:
            while True:
                await self._backlog.wait(1)
                await self._wake_more()
        finally:
            self._stopping = True
            while self._idle:
                self._idle.pop().release()

    async def _wake_more(self) -> None:
        """While jobs wait and the threads awake do not keep up with them."""
        while self._jobs:
            started_before = self._started_jobs
            await trio.sleep(_LOOK_EVERY)
            awake = len(self._threads) - len(self._idle)
            if self._jobs and self._started_jobs - started_before < _FAST * awake:
                for _ in range(max(1, awake)):
                    self._wake_one()

    # ---- in the threads

    def _work(self) -> None:
        own_lock = allocate_lock()
        own_lock.acquire()
        while not self._stopping:
            job = self._next_job()
            if job is None:
                self._sleep(own_lock)
                continue
            self._started_jobs += 1
            job.run(self._call, self._now)
            self._return_results(job)

    def _sleep(self, own_lock: LockType) -> None:
        """Until woken, unless a job came in the meantime."""
        self._idle.append(own_lock)
        if self._jobs or self._stopping:
            try:
                self._idle.remove(own_lock)
            except ValueError:
                pass  # another thread has just taken this lock to wake us: the release below is for us
            else:
                return
        own_lock.acquire()
