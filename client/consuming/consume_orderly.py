"""Orderly consumption: one message of a queue at a time, under the broker's lock, repeated until it is consumed.

A queue's messages are taken in runs of up to 64, each run by one worker, call after call; no other message of the
queue runs meanwhile. A failure ends the run: the queue stops for a second and the failed messages are tried again, so
nothing overtakes them. Past the configured number of tries (without end by default) a message is sent to the dead
letters and the queue continues.

What keeps order when a queue changes hands: the old owner finishes the call it is in, commits, and only then gives the
lock back; the new owner reads the offset only after it has got the lock.

Java: client/impl/consumer/ConsumeMessageOrderlyService.java
"""

from __future__ import annotations

import logging

import trio

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.consumption import Consumption, WorkersFor
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.received_messages import as_pulled
from rocketlet.client.errors import ClientError
from rocketlet.common.message import ReceivedMessage

log = logging.getLogger("rocketlet.client.consume_orderly")

_RUN = 64  # messages a worker takes at once
_MIN_SUSPEND = 0.01
_MAX_SUSPEND = 30.0


class ConsumeOrderly(Consumption):
    """The orderly consumption of one consumer."""

    def __init__(self, consumer: QueueHolder, config: PushConfig, workers: WorkersFor, batch: int) -> None:
        super().__init__(consumer, config, workers, batch)
        self._active: set[ProcessQueue] = set()  # queues being consumed
        self._idle = trio.lowlevel.ParkingLot()

    def submit(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Messages were added to the process queue."""
        if process_queue not in self._active and not process_queue.dropped:
            self._active.add(process_queue)
            self._consumer.session.start_task(self._consume_queue, process_queue)

    async def drain(self) -> None:
        """Wait until no queue is being consumed. Requires: they are dropped, or will run dry."""
        while self._active:
            await self._idle.park()

    async def on_queue_left(self, process_queue: ProcessQueue) -> None:
        """Wait until nothing of this queue is being consumed. Requires: it is dropped."""
        while process_queue in self._active:
            await self._idle.park()

    # ---- one queue

    async def _consume_queue(self, queue: ProcessQueue) -> None:
        try:
            while not queue.dropped and queue.count:
                # A broadcasting group needs no locks: every member has all queues.
                if not self._consumer.broadcasting and not queue.is_locked(trio.current_time() * 1000):
                    await trio.sleep(0.1)  # the renewal gets the lock again, or the queue is dropped
                    continue
                pause = await self._consume_run(queue)
                if pause is not None and not queue.dropped:
                    await self._pause(queue, pause)
        finally:
            self._active.remove(queue)
            self._idle.unpark_all()

    async def _pause(self, queue: ProcessQueue, seconds: float) -> None:
        """Pause, unless the queue is taken away meanwhile."""
        deadline = trio.current_time() + min(max(seconds, _MIN_SUSPEND), _MAX_SUSPEND)
        while not queue.dropped and (remaining := deadline - trio.current_time()) > 0:
            await trio.sleep(min(remaining, 0.5))

    async def _consume_run(self, queue: ProcessQueue) -> float | None:
        """Consume what a worker takes at once; how long to pause after a failure, None where there was none."""
        job = ConsumeJob(queue, queue.oldest(_RUN), orderly=True, batch=self._batch)
        await self.run_alone(job)
        now = trio.current_time()
        queue.last_consume = now * 1000
        self._consumer.statistics.consumed(queue.queue.topic, job.done, int(job.failed), (now - job.started) * 1000)
        self._settle(queue, job.offsets[: job.done])
        if not job.failed:
            return None
        end = job.done + self._batch
        if await self._may_try_again(queue, job.messages[job.done : end], job.offsets[job.done : end]):
            return job.context.suspend if job.context.suspend is not None else self._config.suspend
        self._settle(queue, job.offsets[job.done : end])
        return None

    def _settle(self, queue: ProcessQueue, offsets: list[int]) -> None:
        queue.finish(offsets)
        # Also for a queue that is dropped: whoever gets it next waits for our lock, and then reads this offset.
        self._consumer.offsets.update(queue.queue, queue.committable())
        self._consumer.on_progress(queue)

    async def _may_try_again(self, queue: ProcessQueue, messages: list[ReceivedMessage], offsets: list[int]) -> bool:
        """Count the try; False when all messages have reached their limit and have become dead letters."""
        has_failed = False
        for message, offset in zip(map(as_pulled, messages), offsets, strict=True):
            if self._send_back is not None and message.reconsume_times >= self._send_back.orderly_limit:
                try:
                    await self._send_back.orderly(message)
                    continue
                except ClientError as error:
                    log.warning("%s could not be sent to the dead letters, trying again: %s", message.message_id, error)
            queue.replace(offset, as_pulled(message, 1))
            has_failed = True
        return has_failed
