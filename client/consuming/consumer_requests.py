"""What brokers ask of a consumer: 40 the group has changed, 220 go to these offsets, 221 how far are you, 307 tell all
about yourself, 309 consume this message now.

Java: client/impl/ClientRemotingProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_concurrently import ConsumeConcurrently
from rocketlet.client.consuming.consume_job import ConsumeJob
from rocketlet.client.consuming.consume_orderly import ConsumeOrderly
from rocketlet.client.consuming.consumer_statistics import ConsumerStatistics
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.rebalance import Rebalance
from rocketlet.client.consuming.received_messages import restore_topic
from rocketlet.client.consuming.running_info import check_group, running_info
from rocketlet.client.talking.session import Session
from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.protocol.inspection import (
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
)
from rocketlet.remoting.protocol.membership import NotifyConsumerIdsChangedHeader
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
    config: PushConfig
    session: Session
    rebalance: Rebalance
    consumption: ConsumeConcurrently | ConsumeOrderly
    statistics: ConsumerStatistics
    started_at: int
    consume_type: str

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues that it consumes."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By topic on the wire."""


class ConsumerRequests:
    """The handlers of one push consumer."""

    def __init__(self, consumer: AskedConsumer) -> None:
        self._consumer = consumer

    def handlers(self) -> dict[int, Handler]:
        """Request code -> handler."""
        return {
            int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): Handler(
                self._members_changed, NotifyConsumerIdsChangedHeader
            ),
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): Handler(self._reset, ResetOffsetHeader),
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): Handler(self._status, ConsumerStatusHeader),
            int(RequestCode.GET_CONSUMER_RUNNING_INFO): Handler(self._running_info, GetConsumerRunningInfoHeader),
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): Handler(self._consume_directly, ConsumeMessageDirectlyHeader),
        }

    def _is_mine(self, group: str) -> bool:
        return group == self._consumer.group

    def _check_group(self, group: str) -> None:
        check_group(group, self._consumer.group)

    def _members_changed(self, request: Request) -> Reply:
        if self._is_mine(request.header.consumerGroup):
            log.info("the members of %s have changed; balancing", request.header.consumerGroup)
            self._consumer.rebalance.wake()
        return Reply()

    def _reset(self, request: Request) -> Reply:
        if not self._is_mine(request.header.group):
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
        self._check_group(request.header.group)
        self._consumer.consumption.collect()
        table = {
            queue: process_queue.committable()
            for queue, process_queue in self._consumer.rebalance.held.items()
            if queue.topic == request.header.topic and not process_queue.dropped
        }
        return Reply(body=ConsumerStatusBody(messageQueueTable=table).to_json())

    def _running_info(self, request: Request) -> Reply:
        self._check_group(request.header.consumerGroup)
        self._consumer.consumption.collect()
        return Reply(body=running_info(self._consumer, jstack=request.header.jstackEnable).to_json())

    async def _consume_directly(self, request: Request) -> Reply:
        header: ConsumeMessageDirectlyHeader = request.header
        self._check_group(header.consumerGroup)
        consumer = self._consumer
        message = consumer.session.reader.single(bytes(request.body), header.brokerName or "")
        restore_topic(message, topics.retry_topic(consumer.group), consumer.config.namespace)
        began = consumer.session.world.clock()
        process_queue = ProcessQueue(message.queue, message.queue_offset, 0)
        job = ConsumeJob(process_queue, [message], message.queue, orderly=consumer.config.orderly)
        await consumer.consumption.run_alone(job)
        result = "CR_SUCCESS"
        if job.error is not None:
            result = "CR_THROW_EXCEPTION"
        elif job.failed:
            result = "CR_LATER"
        body = ConsumeMessageDirectlyBody(
            consumeResult=result,
            order=consumer.config.orderly,
            spentTimeMills=consumer.session.world.clock() - began,
            remark=None if job.error is None else f"{type(job.error).__name__}: {job.error}",
        )
        return Reply(body=body.to_json())
