"""Which queue the next send goes to. Pure: queues, turn, faults and time are arguments.

Round robin over the topic's writable queues; a retry avoids the broker of the failed try; with `latency_faults` on, a
broker that is known to be slow or down is skipped, and where all are, one of the better half is taken. For order,
a selector or a sharding key decides, and then nothing is skipped: the same key must meet the same queue.

Java: client/latency/MQFaultStrategy.java#selectOneMessageQueue, client/producer/selector/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rocketlet.client.sending.latency_faults import LatencyFaults
from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message import Message, MessageQueue

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Chooses among a topic's writable queues, for a message and an argument of the caller's."""


def choose(
    queues: Sequence[MessageQueue],
    turn: int,
    avoid: str | None = None,
    faults: LatencyFaults | None = None,
    now: float = 0.0,
) -> MessageQueue:
    """The queue of this turn; `avoid` is the broker of the last try. Requires: queues is not empty."""
    size = len(queues)
    if faults is not None:
        return _choose_available(queues, turn, faults, now)
    if avoid is not None:
        for step in range(size):
            queue = queues[(turn + step) % size]
            if queue.broker_name != avoid:
                return queue
    return queues[turn % size]


def _choose_available(queues: Sequence[MessageQueue], turn: int, faults: LatencyFaults, now: float) -> MessageQueue:
    size = len(queues)
    for step in range(size):
        queue = queues[(turn + step) % size]
        if faults.available(queue.broker_name, now):
            return queue
    broker_name = faults.least_bad(now)
    same_broker = [queue for queue in queues if queue.broker_name == broker_name]
    if same_broker:
        return same_broker[turn % len(same_broker)]
    if broker_name is not None:
        faults.forget(broker_name)
    return queues[turn % size]


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """The queue of a key: Java's hash of its text (of the number itself for an int), modulo the number of queues.

    A Java producer with SelectMessageQueueByHash and the same key reaches the same queue.
    """
    code = argument if isinstance(argument, int) else string_hash(str(argument))
    # Java's remainder keeps the sign of the dividend, and its absolute value is taken after that.
    return queues[abs(code) % len(queues)]
