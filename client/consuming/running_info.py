"""A consumer's running info, for administrators (307): settings, queues, rates, stacks.

Java: client/impl/consumer/MQConsumerInner.java#consumerRunningInfo
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Protocol

import trio

from rocketlet.client.config import ConsumerConfig, PushConfig
from rocketlet.client.consuming.consumer_statistics import ConsumerStatistics
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.talking.broker_calls import subscription_data
from rocketlet.client.talking.session import Session
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.command import VERSION, version_name
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.protocol.inspection import ConsumerRunningInfo, ProcessQueueInfo
from rocketlet.remoting.response_codes import ResponseCode

_NOT_REPORTED = frozenset({"secret_key", "access_key", "security_token", "allocation"})


class Described(Protocol):
    """A consumer that can be described."""

    group: str
    session: Session
    statistics: ConsumerStatistics
    started_at: int
    consume_type: str

    @property
    def config(self) -> ConsumerConfig:
        """Its settings."""

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues that it consumes."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By topic on the wire."""


def check_group(requested: str, own: str) -> None:
    """Raises Refused if a request is about another group."""
    if requested != own:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{requested}> not exist in this consumer client")


def running_info(consumer: Described, *, jstack: bool) -> ConsumerRunningInfo:
    """The whole answer. Requires: what has been consumed is applied."""
    return ConsumerRunningInfo(
        properties=_properties(consumer),
        subscriptionSet=[subscription_data(subscription) for subscription in consumer.subscriptions.values()],
        mqTable={queue: _queue(consumer, process_queue) for queue, process_queue in consumer.held.items()},
        statusTable={topic: consumer.statistics.of(topic) for topic in consumer.subscriptions},
        jstack=stacks() if jstack else None,
    )


def _properties(consumer: Described) -> dict[str, str]:
    config = consumer.config
    properties = {
        field.name: str(getattr(config, field.name)) for field in fields(config) if field.name not in _NOT_REPORTED
    }
    push = config if isinstance(config, PushConfig) else None
    return {
        **properties,
        "PROP_CONSUME_TYPE": consumer.consume_type,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in consumer.session.namesrv.addresses),
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMEORDERLY": "true" if push is not None and push.orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(push.threads if push is not None else 0),
        "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_at),
    }


def _queue(consumer: Described, process_queue: ProcessQueue) -> ProcessQueueInfo:
    first, last = process_queue.open_range
    wall = _wall_time(consumer.session.world.clock)
    return ProcessQueueInfo(
        cachedMsgCount=process_queue.count,
        cachedMsgMaxOffset=last,
        cachedMsgMinOffset=first,
        cachedMsgSizeInMiB=process_queue.bytes >> 20,
        commitOffset=process_queue.committable(),
        droped=process_queue.dropped,
        lastConsumeTimestamp=wall(process_queue.last_consume),
        lastLockTimestamp=wall(process_queue.last_lock) if process_queue.last_lock else 0,
        lastPullTimestamp=wall(process_queue.last_pull),
        locked=process_queue.locked,
    )


def _wall_time(clock: Callable[[], int]) -> Callable[[float], int]:
    """From milliseconds of the engine's clock, which never jumps, to wall-clock time."""

    def wall(engine_ms: float) -> int:
        return clock() - round(trio.current_time() * 1000 - engine_ms)

    return wall


def stacks() -> str:
    """What each thread of this process is doing, as a Java client's jstack shows it."""
    names: dict[int | None, str] = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')} TID: {ident}\n")
        parts.extend(traceback.format_stack(frame))
        parts.append("\n")
    return "".join(parts)
