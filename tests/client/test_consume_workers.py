"""Listeners in threads: all jobs run once, slow ones concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import trio

from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.consume_workers import ThreadWorkers, Workers
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.common.message import MessageQueue
from tests.support.builders import received

QUEUE = MessageQueue("T", "a", 0)


def jobs(count: int) -> list[ConsumeJob]:
    process_queue = ProcessQueue(QUEUE, 0, 0)
    return [ConsumeJob(process_queue, [received(n)]) for n in range(count)]


async def run_workers(
    call: Callable[..., None], threads: int, batches: list[list[ConsumeJob]]
) -> tuple[list[ConsumeJob], int]:
    """The finished jobs, and the final number of threads."""
    finished: list[ConsumeJob] = []
    token = trio.lowlevel.current_trio_token()
    workers = ThreadWorkers(call, threads, finished.extend, token.run_sync_soon, "worker")
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        for batch in batches:
            workers.submit(batch)
            await trio.sleep(0)
        await workers.drain()
        started = len(workers._threads)
        nursery.cancel_scope.cancel()
    return finished, started


async def test_every_job_runs_exactly_once() -> None:
    seen: list[int] = []
    batches = [jobs(100) for _ in range(20)]
    finished, _ = await run_workers(lambda messages, context: seen.append(1), 8, batches)
    assert len(finished) == len(set(finished)) == len(seen) == 2000
    assert all(job.done == 1 and not job.failed for job in finished)


def test_a_job_that_is_taken_while_others_are_submitted_is_waited_for() -> None:
    workers = Workers(lambda messages, context: None, 1, lambda jobs: None)

    class TakenAtOnce(list[ConsumeJob]):
        def __iter__(self) -> Iterator[ConsumeJob]:
            yield from super().__iter__()
            workers._next_job()  # a thread is that fast

    workers.submit(TakenAtOnce(jobs(2)))
    assert workers._outstanding == 2


async def test_a_fast_listener_needs_few_threads() -> None:
    _, started = await run_workers(lambda messages, context: None, 20, [jobs(50) for _ in range(20)])
    assert started <= 4


async def test_blocking_listeners_all_run_concurrently() -> None:
    together = threading.Barrier(10)
    finished, started = await run_workers(lambda messages, context: (together.wait(20), None)[1], 10, [jobs(10)])
    assert len(finished) == started == 10


async def test_a_failure_affects_its_job_only() -> None:
    def call(messages: list[object], context: object) -> None:
        raise ValueError("a listener's mistake")

    finished, _ = await run_workers(call, 2, [jobs(4)])
    assert [job.failed for job in finished] == [True] * 4
    assert all(isinstance(job.error, ValueError) for job in finished)
