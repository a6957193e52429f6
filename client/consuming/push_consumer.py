"""The push consumer: pulls its share of the queues, and calls the listener.

It adds to a `QueueHolder` the consumption, with or without order, and retries. The classes that users see are in
`facades/push_consumers.py`.

Shutdown is the reverse of the start: stop pulling, wait for running listeners, release the queues (commit, return
locks), commit once more and wait for the answers, unregister from the brokers.

Java: client/impl/consumer/DefaultMQPushConsumerImpl.java, client/impl/ClientRemotingProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from rocketlet.client.compression import CannotInflate
from rocketlet.client.config import MessageModel, PushConfig
from rocketlet.client.consuming.consume_concurrently import ConsumeConcurrently
from rocketlet.client.consuming.consume_job import ConsumeJob, Finished
from rocketlet.client.consuming.consume_orderly import ConsumeOrderly
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.received_messages import restore_topic
from rocketlet.client.errors import InvalidUse
from rocketlet.client.hooks import ConsumeHook
from rocketlet.client.talking.session import World
from rocketlet.client.trace import Tracer
from rocketlet.common import topic as topics
from rocketlet.common.clock import monotonic_ms
from rocketlet.common.message_record import Buffer, RecordError
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.handler import Handler, Refused, Reply, Request
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.protocol.inspection import ConsumeMessageDirectlyBody, ConsumeMessageDirectlyHeader
from rocketlet.remoting.protocol.offsets import (
    ConsumerStatusBody,
    ConsumerStatusHeader,
    ResetOffsetBody,
    ResetOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.push_consumer")

_FIRST_PERSIST = 10.0
_LONGEST_RESET = 1 << 20  # a topic's queues at one broker: ten thousand of them; more would hold the loop for seconds
# Direct consumptions that wait for the listener: administrators ask for one at a time.
MOST_DIRECT = 100
MOST_DIRECT_BYTES = 64 << 20


class PushEngine(QueueHolder):
    """One push consumer. Everything is called on its loop."""

    consume_type = "CONSUME_PASSIVELY"
    config: PushConfig

    def __init__(
        self,
        group: str,
        config: PushConfig,
        world: World,
        *,
        workers: Callable[[Finished, Sequence[ConsumeHook]], Workers],
        batch: int,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        """`workers` makes those that run the listener, with hooks around it; finished jobs go to the function."""
        clustering = config.model is MessageModel.CLUSTERING
        super().__init__(group, config, world, locking=config.orderly and clustering)
        self.pull_flags = pulling.SUSPEND | (pulling.COMMIT_OFFSET if clustering else 0)
        if config.post_subscription_when_pull:
            self.pull_flags |= pulling.SUBSCRIPTION
        self.pull_interval = config.pull_interval
        self.tracer = (
            Tracer(self.session, config.trace_topic, world.clock, config.consume_timeout) if config.trace else None
        )
        all_hooks = [*hooks, self.tracer] if self.tracer is not None else list(hooks)
        kind = ConsumeOrderly if config.orderly else ConsumeConcurrently
        self.consumption: ConsumeOrderly | ConsumeConcurrently = kind(
            self, config, lambda finished: workers(finished, all_hooks), batch
        )
        self._retry_topic = topics.retry_topic(self.group)
        self._suspended = False
        self._direct = 0
        self._direct_bytes = 0
        self.session.handlers |= {
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): Handler(
                self._reset, ResetOffsetHeader, longest_body=_LONGEST_RESET
            ),
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): Handler(self._status, ConsumerStatusHeader),
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): Handler(
                self._consume_directly, ConsumeMessageDirectlyHeader, longest_body=None
            ),
        }

    # ---- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        if not self.subscriptions:
            raise InvalidUse("the consumer has no subscription", advice="subscribe to a topic before the start")
        if not self.broadcasting:
            self.subscriptions[self._retry_topic] = self.subscription(self._retry_topic, "*")
        await nursery.start(self.consumption.workers.run)
        nursery.start_soon(self.consumption.watch)
        await super()._begin(nursery)
        interval = self.config.persist_interval
        nursery.start_soon(self._persist_forever, _FIRST_PERSIST if interval >= 5 else interval)
        if self.tracer is not None:
            nursery.start_soon(self.tracer.run)

    async def _end(self) -> None:
        self._suspended = True
        for loop in self._loops.values():
            loop.scope.cancel()
        self.consumption.workers.abandon()
        with trio.move_on_after(self.config.shutdown_timeout) as waiting:
            if self.config.orderly:
                await self.rebalance.give_up_all()
            await self.consumption.drain()
        if waiting.cancelled_caught:
            log.warning("listeners of %s are still running; their messages will be redelivered", self.group)
        self.collect()
        with trio.move_on_after(self.config.request_timeout):
            await self.offsets.persist(list(self.held), wait=True)
            await self.rebalance.give_up_all()
            if self.tracer is not None:
                await self.tracer.flush()

    # ---- for users

    async def commit(self) -> None:
        """Commit now, without waiting for the next round."""
        await self.persist()

    def suspend(self) -> None:
        """Stop pulling. Pulls that the broker holds may still deliver."""
        self._suspended = True

    def resume(self) -> None:
        """Resume pulling."""
        self._suspended = False
        self.pull_again()

    # ---- as the owner of queues (rebalance)

    def on_taken(self, process_queue: ProcessQueue) -> None:
        self.offsets.update(process_queue.queue, process_queue.pulled_to)
        super().on_taken(process_queue)

    async def _finished(self, process_queue: ProcessQueue) -> None:
        await self.consumption.on_queue_left(process_queue)

    def collect(self) -> None:
        self.consumption.workers.collect()

    # ---- the consumer's side of pulling (pull_loop)

    def pulled(
        self, process_queue: ProcessQueue, records: Buffer, subscription: Subscription, next_offset: int
    ) -> None:
        """Hand messages to the listeners."""
        queue = process_queue.queue
        shown_queue = self.shown(queue)
        is_retry = queue.topic == self._retry_topic
        reader = self.session.reader
        messages = reader.pulled(records, shown_queue, subscription, whole=is_retry)
        if reader.rest_from is not None:
            next_offset = reader.rest_from
        process_queue.put(messages, next_offset)
        if not messages:
            if not process_queue.count:
                self.offsets.update(queue, process_queue.committable())
            return
        self.statistics.pulled(queue.topic, len(messages))
        if is_retry:
            for message in messages:
                restore_topic(message, shown_queue.topic, self.config.namespace)
        self.consumption.submit(process_queue, messages)

    def full(self, process_queue: ProcessQueue) -> str:
        if self._suspended:
            return "the consumer is suspended"
        config = self.config
        if config.orderly and not self.broadcasting and not process_queue.is_locked(trio.current_time() * 1000):
            return "the queue is not locked"
        if process_queue.count >= config.queue_max_messages or process_queue.bytes >= config.queue_max_bytes:
            self.collect()
        of_topic = self.rebalance.topic_totals[process_queue.queue.topic]
        if 0 <= config.topic_max_messages <= of_topic.count or 0 <= config.topic_max_bytes <= of_topic.bytes:
            return f"{of_topic.count} messages of the topic, {of_topic.bytes} bytes, are not consumed yet"
        return self._full(process_queue, None if config.orderly else config.max_span)

    # ---- asked by brokers, for administrators

    def _reset(self, request: Request) -> Reply:
        if request.header.group != self.group:
            return Reply()
        table = ResetOffsetBody.from_json(bytes(request.body)).offsetTable
        for queue, offset in table.items():
            process_queue = self.held.get(queue)
            if process_queue is not None and queue.topic == request.header.topic:
                log.warning("%s is set to offset %d by %s", queue, offset, request.connection.peer)
                self.rebalance.restart(process_queue, offset)
        return Reply()

    def _status(self, request: Request) -> Reply:
        self.check_is_ours(request.header.group)
        self.collect()
        table = {
            queue: process_queue.committable()
            for queue, process_queue in self.held.items()
            if queue.topic == request.header.topic and not process_queue.dropped
        }
        return Reply(body=ConsumerStatusBody(messageQueueTable=table).to_json())

    async def _consume_directly(self, request: Request) -> Reply:
        header: ConsumeMessageDirectlyHeader = request.header
        self.check_is_ours(header.consumerGroup)
        if self._direct >= MOST_DIRECT or (self._direct and self._direct_bytes + len(request.body) > MOST_DIRECT_BYTES):
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"{self._direct} messages of {self._direct_bytes} bytes wait for the listener already",
            )
        try:
            message = self.session.reader.single(bytes(request.body), header.brokerName or "")
        except (RecordError, CannotInflate) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        request.body = b""
        restore_topic(message, self._retry_topic, self.config.namespace)
        start = monotonic_ms()
        process_queue = ProcessQueue(message.queue, message.queue_offset, 0)
        job = ConsumeJob(process_queue, [message], orderly=self.config.orderly)
        size = len(message.body)
        self._direct += 1
        self._direct_bytes += size
        job.on_finished = partial(self._direct_ended, size)
        await self.consumption.run_alone(job)
        result = "CR_SUCCESS"
        if job.error is not None:
            result = "CR_THROW_EXCEPTION"
        elif job.failed:
            result = "CR_LATER"
        body = ConsumeMessageDirectlyBody(
            consumeResult=result,
            order=self.config.orderly,
            spentTimeMills=monotonic_ms() - start,
            remark=None if job.error is None else f"{type(job.error).__name__}: {job.error}",
        )
        return Reply(body=body.to_json())

    def _direct_ended(self, size: int) -> None:
        """Not before: a listener that is called has its message, whether or not somebody waits for the answer."""
        self._direct -= 1
        self._direct_bytes -= size
