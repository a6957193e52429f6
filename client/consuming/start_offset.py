"""Where a consumer begins in a queue that it acquires: at the group's stored offset, else as `consume_from` says.

A group that is new to a queue begins at its end, its beginning or a time. A retry topic is different: what is in it
waits for this group, so it is consumed from its beginning (by a time: from its end, as RocketMQ has it).

Java: client/impl/consumer/RebalancePushImpl.java#computePullFromWhereWithException
"""

from __future__ import annotations

from rocketlet.client.config import ConsumeFrom
from rocketlet.client.consuming.offset_store import OffsetStore
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import is_retry_topic

HALF_AN_HOUR_MS = 30 * 60 * 1000


async def start_offset(
    queue: MessageQueue,
    address: str,
    *,
    offsets: OffsetStore,
    brokers: BrokerCalls,
    consume_from: ConsumeFrom,
    timestamp: int,
) -> int:
    """The offset of the first pull. Raises ClientError where it cannot be known now."""
    stored = await offsets.read(queue)
    if stored is not None:
        return stored
    if consume_from is ConsumeFrom.FIRST_OFFSET:
        return await brokers.min_offset(address, queue)
    if consume_from is ConsumeFrom.LAST_OFFSET:
        return 0 if is_retry_topic(queue.topic) else await brokers.max_offset(address, queue)
    if is_retry_topic(queue.topic):
        return await brokers.max_offset(address, queue)
    return await brokers.offset_at(address, queue, timestamp)
