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
    if faults is None and avoid is None:
        return queues[turn % len(queues)]
    in_turn = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
    if faults is None:
        return next((queue for queue in in_turn if queue.broker_name != avoid), in_turn[0])
    for queue in in_turn:
        if faults.available(queue.broker_name, now):
            return queue
    broker_name = faults.least_bad(now)
    same_broker = [queue for queue in queues if queue.broker_name == broker_name]
    if same_broker:
        return same_broker[turn % len(same_broker)]
    if broker_name is not None:
        faults.forget(broker_name)
    return in_turn[0]


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """The queue of a key: Java's hash of its text (of the number itself for an int), modulo the number of queues.

    A Java producer with SelectMessageQueueByHash and the same key reaches the same queue.
    """
    code = argument if isinstance(argument, int) else string_hash(str(argument))
    # Java's remainder keeps the sign of the dividend, and its absolute value is taken after that.
    return queues[abs(code) % len(queues)]
