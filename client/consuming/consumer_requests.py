"""Requests from brokers that only push consumers serve: 220 reset offsets, 221 consumer status, 309 consume this
message.

Java: client/impl/ClientRemotingProcessor.java
"""

from __future__ import annotations

import logging
from typing import Protocol

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_concurrently import ConsumeConcurrently
from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.consume_orderly import ConsumeOrderly
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.rebalance import Rebalance
from rocketlet.client.consuming.received_messages import restore_topic
from rocketlet.client.consuming.running_info import check_group
from rocketlet.client.talking.session import Session
from rocketlet.common import topic as topics
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.protocol.inspection import (
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
)
from rocketlet.remoting.protocol.offsets import (
    ConsumerStatusBody,
    ConsumerStatusHeader,
    ResetOffsetBody,
    ResetOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.client.consumer_requests")


class AskedConsumer(Protocol):
    """What must be known of a push consumer to answer."""

    group: str
    push_config: PushConfig
    session: Session
    rebalance: Rebalance
    consumption: ConsumeConcurrently | ConsumeOrderly


class ConsumerRequests:
    """The handlers of one push consumer."""

    def __init__(self, consumer: AskedConsumer) -> None:
        self._consumer = consumer

    def handlers(self) -> dict[int, Handler]:
        """Request code -> handler."""
        return {
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): Handler(self._reset, ResetOffsetHeader, longest_body=None),
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): Handler(self._status, ConsumerStatusHeader),
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): Handler(
                self._consume_directly, ConsumeMessageDirectlyHeader, longest_body=None
            ),
        }

    def _reset(self, request: Request) -> Reply:
        if request.header.group != self._consumer.group:
            return Reply()
        table = ResetOffsetBody.from_json(bytes(request.body)).offsetTable
        rebalance = self._consumer.rebalance
        for queue, offset in table.items():
            process_queue = rebalance.held.get(queue)
            if process_queue is not None and queue.topic == request.header.topic:
                log.warning("%s is set to offset %d by %s", queue, offset, request.connection.peer)
                rebalance.restart(process_queue, offset)
        return Reply()

    def _status(self, request: Request) -> Reply:
        check_group(request.header.group, self._consumer.group)
        self._consumer.consumption.collect()
        table = {
            queue: process_queue.committable()
            for queue, process_queue in self._consumer.rebalance.held.items()
            if queue.topic == request.header.topic and not process_queue.dropped
        }
        return Reply(body=ConsumerStatusBody(messageQueueTable=table).to_json())

    async def _consume_directly(self, request: Request) -> Reply:
        header: ConsumeMessageDirectlyHeader = request.header
        check_group(header.consumerGroup, self._consumer.group)
        consumer = self._consumer
        message = consumer.session.reader.single(bytes(request.body), header.brokerName or "")
        restore_topic(message, topics.retry_topic(consumer.group), consumer.push_config.namespace)
        began = consumer.session.world.clock()
        process_queue = ProcessQueue(message.queue, message.queue_offset, 0)
        job = ConsumeJob(process_queue, [message], message.queue, orderly=consumer.push_config.orderly)
        await consumer.consumption.run_alone(job)
        result = "CR_SUCCESS"
        if job.error is not None:
            result = "CR_THROW_EXCEPTION"
        elif job.failed:
            result = "CR_LATER"
        body = ConsumeMessageDirectlyBody(
            consumeResult=result,
            order=consumer.push_config.orderly,
            spentTimeMills=consumer.session.world.clock() - began,
            remark=None if job.error is None else f"{type(job.error).__name__}: {job.error}",
        )
        return Reply(body=body.to_json())
