"""From pulled messages to the listener: what concurrent and orderly consumption share.

Java: client/impl/consumer/ConsumeMessageService.java
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import ConsumeJob, Finished
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.send_back import SendBack

WorkersFor: TypeAlias = Callable[[Finished], Workers]
"""Makes workers that hand finished jobs to this function."""


class Consumption:
    """Feeds one consumer's listener. Lives on the engine's loop; only listeners run elsewhere."""

    def __init__(self, consumer: QueueHolder, config: PushConfig, workers: WorkersFor, batch: int) -> None:
        self._consumer = consumer
        self._config = config
        self.workers = workers(self._finished)
        # A broadcast message is not retried.
        self._send_back = None if consumer.broadcasting else SendBack(consumer)
        self._batch = batch

    async def watch(self) -> None:
        """Runs beside the listeners."""

    async def run_alone(self, job: ConsumeJob) -> None:
        """Run one job and wait for it; settling its outcome is up to the caller."""
        finished, then = trio.Event(), job.on_finished

        def on_finished() -> None:
            finished.set()
            if then is not None:
                then()

        job.on_finished = on_finished
        self.workers.submit([job])
        await finished.wait()

    def _finished(self, jobs: Sequence[ConsumeJob]) -> None:
        """Jobs are over. Requires: they were run alone."""
        for job in jobs:
            assert job.on_finished is not None
            job.on_finished()
