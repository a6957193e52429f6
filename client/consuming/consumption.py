"""From pulled messages to the listener: what concurrent and orderly consumption share.

Java: client/impl/consumer/ConsumeMessageService.java
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import ConsumeJob, Finished
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.send_back import SendBack


class Consumption:
    """Feeds one consumer's listener. Lives on the engine's loop; only listeners run elsewhere."""

    def __init__(
        self, consumer: QueueHolder, config: PushConfig, workers: Callable[[Finished], Workers], batch: int
    ) -> None:
        self._consumer = consumer
        self._config = config
        self._workers = workers(self._finished)
        # A broadcast message is not retried.
        self._send_back = None if consumer.broadcasting else SendBack(consumer.session, consumer.group, config)
        self._batch = batch
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Consume until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._workers.run)
            nursery.start_soon(self._watch)
            task_status.started()

    async def _watch(self) -> None:
        """Runs beside the listeners."""

    async def run_alone(self, job: ConsumeJob) -> None:
        """Run one job and wait for it; settling its outcome is up to the caller."""
        finished = trio.Event()
        job.on_finished = finished.set
        self._workers.submit([job])
        await finished.wait()

    def collect(self) -> None:
        """Apply what has been consumed so far."""
        self._workers.collect()

    def abandon(self) -> None:
        """Start no further job; messages whose job has not begun are not consumed."""
        self._workers.abandon()

    def _finished(self, jobs: Sequence[ConsumeJob]) -> None:
        """Jobs are over."""
        raise NotImplementedError
