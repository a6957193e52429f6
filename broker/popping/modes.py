"""How groups receive messages of topics, PULL or POP, and how the broker allocates queues. Pure.

Java: broker/loadbalance/MessageRequestModeManager.java; client/consumer/rebalance/AllocateMessageQueueAveragely.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from rocketlet.common.topic import is_group_name, is_topic_name
from rocketlet.remoting.protocol.popping import MODES, RequestMode, RequestModeTable

log = logging.getLogger("rocketlet.broker.popping.modes")

MAX_MODES = 10_000  # the table is written and answered in one go


class RequestModes:
    """Modes by topic and group; PULL by default."""

    def __init__(self) -> None:
        self._modes: dict[tuple[str, str], RequestMode] = {}
        self.version = 0

    def get(self, topic: str, group: str) -> RequestMode:
        return self._modes.get((topic, group)) or RequestMode(topic, group)

    def set(self, mode: RequestMode) -> bool:
        """False if the table is full. REQUIRES checked names."""
        key = mode.topic, mode.consumerGroup
        if key not in self._modes and len(self._modes) >= MAX_MODES:
            return False
        self._modes[key] = mode
        self.version += 1
        return True

    def to_body(self) -> RequestModeTable:
        table: dict[str, dict[str, RequestMode]] = {}
        for (topic, group), mode in self._modes.items():
            table.setdefault(topic, {})[group] = mode
        return RequestModeTable(table)

    def load(self, body: Any) -> None:
        """Load the file; invalid entries are skipped."""
        for mode in _read(body):
            if mode.mode in MODES and is_topic_name(mode.topic) and is_group_name(mode.consumerGroup):
                self.set(mode)
            else:
                log.warning("the request mode %r is left out", mode)

    def __len__(self) -> int:
        return len(self._modes)


def _read(body: Any) -> Iterator[RequestMode]:
    table = body.get("messageRequestModeMap") if isinstance(body, dict) else None
    for groups in (table if isinstance(table, dict) else {}).values():
        for mode in (groups if isinstance(groups, dict) else {}).values():
            try:
                yield msgspec.convert(mode, RequestMode, strict=False)
            except msgspec.ValidationError as error:
                log.warning("a request mode is left out: %s", error)


Queue = TypeVar("Queue")


def allocate_queues(queues: Sequence[Queue], clients: Sequence[str], client: str, extra: int = 0) -> list[Queue]:
    """The share of a client, in equal parts, and those of the `extra` clients after it; all if it is not a member yet.

    `clients` are sorted, so all brokers compute the same shares.
    """
    if client not in clients:
        return list(queues)
    at, count = clients.index(client), len(clients)
    return [queue for step in range(min(extra, count - 1) + 1) for queue in _part(queues, (at + step) % count, count)]


def _part(queues: Sequence[Queue], at: int, count: int) -> Sequence[Queue]:
    size, remainder = divmod(len(queues), count)
    begin = at * size + min(at, remainder)
    return queues[begin : begin + size + (at < remainder)]
