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
        state = json.loads(text)
    except ValueError as error:
        raise BadOffsets(f"offsets {text!r} are not JSON: {error}") from None
    return from_state(state, least=EARLIEST)


def from_state(state: Any, least: int = 0) -> Offsets:
    """The offsets of a decoded JSON object. Raises BadOffsets."""
    offsets: Offsets = {}
    if not isinstance(state, dict):
        raise BadOffsets('offsets are an object of topics, such as {"Orders": {"broker-a:0": 17}}')
    for topic, queues in state.items():
        if not isinstance(queues, dict):
            raise BadOffsets(f'offsets of topic {topic}: an object of queues is needed, such as {{"broker-a:0": 17}}')
        for name, offset in queues.items():
            broker_name, colon, number = str(name).rpartition(":")
            if not colon or not broker_name or not (number.isascii() and number.isdigit()):
                raise BadOffsets(f"offsets of topic {topic}: {name!r} is no queue; write broker-a:0")
            if isinstance(offset, bool) or not isinstance(offset, int) or not least <= offset <= _LARGEST:
                raise BadOffsets(f"offsets of topic {topic}: {offset!r} of queue {name} is no offset")
            offsets[MessageQueue(topic, broker_name, int(number))] = offset
    return offsets


def to_state(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, int]]:
    """The offsets as a checkpoint holds them, in an order of their own."""
    state: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets):
        state.setdefault(queue.topic, {})[f"{queue.broker_name}:{queue.queue_id}"] = offsets[queue]
    return state


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[OffsetRange]:
    """The ranges between two offsets of the same queues, without empty ones."""
    return [OffsetRange(queue, start[queue], end[queue]) for queue in sorted(end) if start[queue] < end[queue]]


def limited(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], max_messages: int) -> Offsets:
    """Ends that are at most `max_messages` messages away from the start, divided by how much each queue has.

    Every queue with messages advances by at least one as long as `max_messages` allows, so that long queues do not
    hold up a short one.
    """
    backlog = {queue: max(end[queue] - start[queue], 0) for queue in end}
    total = sum(backlog.values())
    if total <= max_messages:
        return dict(end)
    limit = dict(start)
    remaining = max_messages
    for queue in sorted(end, key=lambda queue: (backlog[queue], queue)):
        share = min(backlog[queue], max(max_messages * backlog[queue] // total, 1), remaining)
        limit[queue] = start[queue] + share
        remaining -= share
    for queue in sorted(end):  # what rounding left over
        extra = min(remaining, end[queue] - limit[queue])
        if extra > 0:
            limit[queue] += extra
            remaining -= extra
    return limit


def cut(ranges: Iterable[OffsetRange], tasks: int, max_messages: int) -> list[OffsetRange]:
    """The ranges in pieces of at most `max_messages` messages, and about `tasks` pieces if there are fewer ranges."""
    ranges = [piece for piece in ranges if len(piece)]
    total = sum(len(piece) for piece in ranges)
    pieces = []
    for piece in ranges:
        count = max(-(-len(piece) // max_messages), round(tasks * len(piece) / total) if len(ranges) < tasks else 1, 1)
        count = min(count, len(piece))
        borders = [piece.begin + len(piece) * number // count for number in range(count + 1)]
        pieces += [OffsetRange(piece.queue, borders[n], borders[n + 1]) for n in range(count)]
    return pieces
