"""Concurrent consumption: many listeners run at once, failed messages come back through the retry topic.

A message leaves its process queue when it is consumed, or handed over to the retry topic, or (broadcasting) given up.
A message that can be neither consumed nor handed over stays, and is tried again after 5 s. One that a listener keeps
beyond the consume time-out is handed over while it is being consumed, so that a hanging listener cannot hold the
queue's offset back for ever; what that listener returns later is ignored.

Java: client/impl/consumer/ConsumeMessageConcurrentlyService.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import compress

import trio

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.consume_results import ConsumeContext
from rocketlet.client.consuming.consumption import Consumption, WorkersFor
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.received_messages import as_pulled
from rocketlet.client.errors import ClientError
from rocketlet.common.message import ReceivedMessage

log = logging.getLogger("rocketlet.client.consume_concurrently")

_TRY_AGAIN_AFTER = 5.0
_EXPIRED_LEVEL = 3


class ConsumeConcurrently(Consumption):
    """The concurrent consumption of one consumer."""

    def __init__(self, consumer: QueueHolder, config: PushConfig, workers: WorkersFor, batch: int) -> None:
        super().__init__(consumer, config, workers, batch)
        self._running: set[ConsumeJob] = set()
        self._returning = 0  # hand-overs in progress
        self._returned = trio.lowlevel.ParkingLot()

    def submit(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Submit these for consumption."""
        jobs = [
            ConsumeJob(process_queue, messages[begin : begin + self._batch])
            for begin in range(0, len(messages), self._batch)
        ]
        self._running.update(jobs)
        self.workers.submit(jobs)

    async def drain(self) -> None:
        """Wait until nothing is being consumed or handed over."""
        await self.workers.drain()
        while self._returning:
            await self._returned.park()

    async def on_queue_left(self, process_queue: ProcessQueue) -> None:
        """Take in what was consumed of a queue that is dropped; what listeners still hold of it is not waited for."""
        self.workers.collect()

    # ---- afterwards

    def _finished(self, jobs: Sequence[ConsumeJob]) -> None:
        """What was consumed is settled queue by queue: a third of what each message by itself would cost."""
        now = trio.current_time()
        consumed: dict[ProcessQueue, list[int]] = {}
        seconds: dict[ProcessQueue, float] = {}
        for job in jobs:
            if job.on_finished is not None:
                job.on_finished()
                continue
            self._running.discard(job)
            if job.expired:
                continue
            queue = job.process_queue
            if job.failed:
                self._failed(job, now)
            elif queue in consumed:
                consumed[queue] += job.offsets
                seconds[queue] += now - job.started
            else:
                consumed[queue] = list(job.offsets)
                seconds[queue] = now - job.started
        for queue, offsets in consumed.items():
            queue.last_consume = now * 1000
            self._consumer.statistics.consumed(queue.queue.topic, len(offsets), 0, seconds[queue] * 1000)
            self._settle(queue, offsets)

    def _failed(self, job: ConsumeJob, now: float) -> None:
        queue = job.process_queue
        queue.last_consume = now * 1000
        unconsumed = job.offsets[job.done :]
        self._consumer.statistics.consumed(queue.queue.topic, job.done, len(unconsumed), (now - job.started) * 1000)
        self._settle(queue, job.offsets[: job.done])
        if self._send_back is None:
            log.warning("%d broadcast messages of %s were not consumed and are dropped", len(unconsumed), job.queue)
            self._settle(queue, unconsumed)
            return
        self._hand_over(job)

    def _settle(self, queue: ProcessQueue, offsets: Iterable[int]) -> None:
        queue.finish(offsets)
        if not queue.dropped:
            self._consumer.offsets.update(queue.queue, queue.committable())
        self._consumer.on_progress(queue)

    def _hand_over(self, job: ConsumeJob) -> None:
        """What is not consumed of a job, as it was pulled."""
        self._returning += 1
        messages = [as_pulled(message) for message in job.messages[job.done :]]
        self._consumer.session.start_task(self._return_all, job, messages, job.context.delay_level)

    async def _return_all(self, job: ConsumeJob, messages: list[ReceivedMessage], delay_level: int) -> None:
        try:
            returned = [await self._return_one(message, delay_level) for message in messages]
        finally:
            self._returning -= 1
            self._returned.unpark_all()
        queue = job.process_queue
        self._settle(queue, [message.queue_offset for message in compress(messages, returned)])
        stuck = [as_pulled(message, 1) for message, gone in zip(messages, returned, strict=True) if not gone]
        if stuck and not job.expired:
            await trio.sleep(_TRY_AGAIN_AFTER)
            if not queue.dropped:
                self.submit(queue, stuck)

    async def _return_one(self, message: ReceivedMessage, delay_level: int) -> bool:
        assert self._send_back is not None
        try:
            await self._send_back.concurrent(message, delay_level)
        except ClientError as error:
            log.warning("%s stays here and is consumed again in 5 s: %s", message.message_id, error)
            return False
        return True

    # ---- listeners that do not come back

    async def watch(self) -> None:
        timeout = self._config.consume_timeout
        while True:
            await trio.sleep(min(timeout, 60.0))
            limit = trio.current_time() - timeout
            for job in [job for job in self._running if 0 <= job.started < limit and not job.expired]:
                self._expire(job)

    def _expire(self, job: ConsumeJob) -> None:
        if self._send_back is None:
            return
        log.error(
            "a listener has kept %d messages of %s for %.0f s; they are sent back for another try",
            len(job.messages),
            job.queue,
            trio.current_time() - job.started,
        )
        job.expired = True
        job.context = ConsumeContext(job.queue, orderly=False, delay_level=_EXPIRED_LEVEL)
        self._hand_over(job)
