"""What brokers ask of a consumer: 40 the group has changed, 220 go to these offsets, 221 how far are you, 307 tell all
about yourself, 309 consume this message now.

Java: client/impl/ClientRemotingProcessor.java
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

import trio

from client.broker_calls import subscription_data
from client.config import PushConfig
from client.consume_concurrently import ConsumeConcurrently
from client.consume_job import ConsumeJob
from client.consume_orderly import ConsumeOrderly
from client.consumer_statistics import ConsumerStatistics
from client.process_queue import ProcessQueue
from client.rebalance import Rebalance
from client.received_messages import restore_topic
from client.session import Session
from common import topic as topics
from common.message import MessageQueue
from common.subscription import Subscription
from remoting.command import VERSION, version_name
from remoting.handler import Handler, Refused, Reply, Request
from remoting.protocol.inspection import (
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerRunningInfoHeader,
    ProcessQueueInfo,
)
from remoting.protocol.membership import NotifyConsumerIdsChangedHeader
from remoting.protocol.offsets import ConsumerStatusBody, ConsumerStatusHeader, ResetOffsetBody, ResetOffsetHeader
from remoting.request_codes import RequestCode
from remoting.response_codes import ResponseCode

log = logging.getLogger("client.consumer_requests")


class AskedConsumer(Protocol):
    """What must be known of a push consumer to answer."""

    group: str
    config: PushConfig
    session: Session
    rebalance: Rebalance
    consumption: ConsumeConcurrently | ConsumeOrderly
    statistics: ConsumerStatistics
    started_at: int

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
        if not self._is_mine(group):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer client")

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
        consumer = self._consumer
        consumer.consumption.collect()
        info = ConsumerRunningInfo(
            properties=self._properties(),
            subscriptionSet=[subscription_data(subscription) for subscription in consumer.subscriptions.values()],
            mqTable=self._queues(),
            statusTable={topic: self._speed(topic) for topic in consumer.subscriptions},
            jstack=stacks() if request.header.jstackEnable else None,
        )
        return Reply(body=info.to_json())

    def _properties(self) -> dict[str, str]:
        consumer = self._consumer
        config = consumer.config
        shown = {
            field.name: str(getattr(config, field.name))
            for field in fields(config)
            if field.name not in ("secret_key", "access_key", "security_token", "allocation")
        }
        return {
            **shown,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in consumer.session.namesrv.addresses),
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMEORDERLY": "true" if config.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(config.threads),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_at),
        }

    def _queues(self) -> dict[MessageQueue, ProcessQueueInfo]:
        return {queue: self._queue(process_queue) for queue, process_queue in self._consumer.rebalance.held.items()}

    def _queue(self, process_queue: ProcessQueue) -> ProcessQueueInfo:
        at = process_queue.statistics()
        clock = self._consumer.session.world.clock

        def wall(engine_ms: float) -> int:
            return clock() - round(trio.current_time() * 1000 - engine_ms)

        return ProcessQueueInfo(
            cachedMsgCount=at.count,
            cachedMsgMaxOffset=at.max_offset,
            cachedMsgMinOffset=at.min_offset,
            cachedMsgSizeInMiB=at.bytes >> 20,
            commitOffset=at.committable,
            droped=at.dropped,
            lastConsumeTimestamp=wall(at.last_consume),
            lastLockTimestamp=wall(at.last_lock) if at.last_lock else 0,
            lastPullTimestamp=wall(at.last_pull),
            locked=at.locked,
        )

    def _speed(self, topic: str) -> ConsumeStatus:
        at = self._consumer.statistics.snapshot(topic)
        return ConsumeStatus(
            consumeFailedMsgs=at.failed,
            consumeFailedTPS=at.failed_rate,
            consumeOKTPS=at.consumed_rate,
            consumeRT=at.consume_time,
            pullRT=at.pull_time,
            pullTPS=at.pulled_rate,
        )

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


def stacks() -> str:
    """What each thread of this process is doing, as a Java client's jstack shows it."""
    names: dict[int | None, str] = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[Any] = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')} TID: {ident}\n")
        parts.extend(traceback.format_stack(frame))
        parts.append("\n")
    return "".join(parts)
