"""Events about corrected offsets, in the topic OFFSET_MOVED_EVENT, where monitoring looks for groups that lost their
position.

RocketMQ writes one for each pull whose offset is corrected. A peer could thus fill the disk by pulling at offsets that
never existed; here each group and queue gets one a minute, and all together are limited.

Java: broker/processor/PullMessageProcessor.java (generateOffsetMovedEvent)
"""

from __future__ import annotations

import logging

from rocketlet.broker.identity import Identity
from rocketlet.broker.put_again import tags_code
from rocketlet.broker.statistics import Flow
from rocketlet.common import message_properties
from rocketlet.common.clock import WallClock
from rocketlet.common.topic import OFFSET_MOVED_EVENT
from rocketlet.remoting.protocol.offsets import OffsetMovedEvent
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.store.errors import StoreError
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.offset_moved")

MINUTE_MS = 60_000
MAX_PER_MINUTE = 600


class OffsetMovedEvents:
    """Writes the events, which are dispatched at the end of the turn."""

    def __init__(self, identity: Identity, store: MessageStore, clock: WallClock, total: Flow) -> None:
        self._identity = identity
        self._store = store
        self._clock = clock
        self._total = total
        self._minute = 0
        self._announced: set[tuple[str, str, int]] = set()  # this minute

    def moved(self, group: str, topic: str, queue_id: int, requested: int, following: int) -> None:
        """A pull's offset was corrected."""
        now = self._clock()
        if now // MINUTE_MS != self._minute:
            self._minute = now // MINUTE_MS
            self._announced.clear()
        key = (group, topic, queue_id)
        if topic == OFFSET_MOVED_EVENT or key in self._announced or len(self._announced) >= MAX_PER_MINUTE:
            return
        self._announced.add(key)
        event = OffsetMovedEvent(group, WireQueue(self._identity.name, queue_id, topic), following, requested)
        properties = message_properties.encode({"KEYS": topic, "TAGS": group, "WAIT": "false"}).encode()
        host = self._identity.store_host
        try:
            stored = self._store.put(
                Put(
                    OFFSET_MOVED_EVENT,
                    0,
                    event.to_json(),
                    properties,
                    tags_code(properties),
                    (topic.encode(),),
                    born_timestamp=now,
                    born_host=host,
                    store_host=host,
                )
            )
        except StoreError as error:
            log.warning("an event about the offset of %s in queue %d of %s is lost: %s", group, queue_id, topic, error)
            return
        self._total.add(1, stored.size)
