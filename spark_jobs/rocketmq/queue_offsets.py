"""Offsets of many queues, as values: their JSON, the ranges that one micro-batch reads, and how tasks share them.

Users and checkpoints write offsets as Kafka's connector does, with a queue named by its broker and number:

    {"Orders": {"broker-a:0": 17, "broker-a:1": -2}}

-2 stands for the oldest message and -1 for the end of the queue, in options only. What a checkpoint holds is numbers.

Java: common/message/MessageQueue.java
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rocketlet.common.errors import RocketletError
from rocketlet.common.message import MessageQueue

EARLIEST = -2
LATEST = -1
_LARGEST = (1 << 63) - 1

Offsets: TypeAlias = dict[MessageQueue, int]


class BadOffsets(RocketletError):
    """Offsets that cannot be read; the text says where."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages of a queue from `begin` up to, and without, `end`."""

    queue: MessageQueue
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


def parse(text: str) -> Offsets:
    """The offsets that a user wrote. Raises BadOffsets."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadOffsets(f"offsets {text!r} are not JSON: {error}") from None
    return from_state(given, least=EARLIEST)


def from_state(given: Any, least: int = 0) -> Offsets:
    """The offsets of a decoded JSON object. Raises BadOffsets."""
    found: Offsets = {}
    if not isinstance(given, dict):
        raise BadOffsets('offsets are an object of topics, such as {"Orders": {"broker-a:0": 17}}')
    for topic, queues in given.items():
        if not isinstance(queues, dict):
            raise BadOffsets(f'offsets of topic {topic}: an object of queues is needed, such as {{"broker-a:0": 17}}')
        for name, offset in queues.items():
            broker_name, colon, number = str(name).rpartition(":")
            if not colon or not broker_name or not (number.isascii() and number.isdigit()):
                raise BadOffsets(f"offsets of topic {topic}: {name!r} is no queue; write broker-a:0")
            if isinstance(offset, bool) or not isinstance(offset, int) or not least <= offset <= _LARGEST:
                raise BadOffsets(f"offsets of topic {topic}: {offset!r} of queue {name} is no offset")
            found[MessageQueue(topic, broker_name, int(number))] = offset
    return found


def to_state(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, int]]:
    """The offsets as a checkpoint holds them, in an order of their own."""
    state: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets):
        state.setdefault(queue.topic, {})[f"{queue.broker_name}:{queue.queue_id}"] = offsets[queue]
    return state


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[OffsetRange]:
    """The ranges between two offsets of the same queues, without empty ones."""
    return [OffsetRange(queue, start[queue], end[queue]) for queue in sorted(end) if start[queue] < end[queue]]


def limited(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], most: int) -> Offsets:
    """Ends that are at most `most` messages away from the start, shared out by how much each queue has.

    Every queue with messages comes forward by one at least as long as `most` allows, so that a short queue is not
    held up by long ones.
    """
    backlog = {queue: max(end[queue] - start[queue], 0) for queue in end}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    limit = dict(start)
    left = most
    for queue in sorted(end, key=lambda queue: (backlog[queue], queue)):
        share = min(backlog[queue], max(most * backlog[queue] // total, 1), left)
        limit[queue] = start[queue] + share
        left -= share
    for queue in sorted(end):  # what rounding left over
        more = min(left, end[queue] - limit[queue])
        if more > 0:
            limit[queue] += more
            left -= more
    return limit


def cut(ranges: Iterable[OffsetRange], tasks: int, most: int) -> list[OffsetRange]:
    """The ranges in pieces of at most `most` messages, and in about `tasks` pieces where there are fewer ranges."""
    ranges = [one for one in ranges if len(one)]
    total = sum(len(one) for one in ranges)
    pieces = []
    for one in ranges:
        count = max(-(-len(one) // most), round(tasks * len(one) / total) if len(ranges) < tasks else 1, 1)
        count = min(count, len(one))
        borders = [one.begin + len(one) * number // count for number in range(count + 1)]
        pieces += [OffsetRange(one.queue, borders[n], borders[n + 1]) for n in range(count)]
    return pieces
