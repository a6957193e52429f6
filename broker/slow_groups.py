"""Stops groups that lag so far behind that reading for them would slow down all others, if enabled.

Off by default (`disableConsumeIfConsumerReadSlowly`). An administrator lets such a group continue by `updateSubGroup`.

Java: broker/BrokerController.java (protectBroker)
"""

from __future__ import annotations

import logging

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.slow_groups")

CHECK_SECONDS = 180.0


class SlowGroups:
    """Checks every three minutes."""

    def __init__(
        self, settings: Settings, groups: SubscriptionGroups, offsets: ConsumerOffsets, store: MessageStore
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._store = store

    async def run(self) -> None:
        while True:
            await trio.sleep(CHECK_SECONDS)
            if self._settings.now.disable_consume_if_consumer_read_slowly:
                self.stop_slow_groups()

    def stop_slow_groups(self) -> None:
        threshold = self._settings.now.consumer_fallbehind_threshold
        for group in list(self._groups):
            lag = self.bytes_behind(group.groupName) if group.consumeEnable else 0
            if lag > threshold:
                log.error(
                    "group %s is %d bytes of the log behind (consumerFallbehindThreshold %d): it may not consume any "
                    "more until an administrator enables it",
                    group.groupName,
                    lag,
                    threshold,
                )
                self._groups.disable_consume(group.groupName)

    def bytes_behind(self, group: str) -> int:
        """Bytes from the oldest message that the group has not read to the end of the log."""
        furthest = self._store.log.end
        for topic in self._offsets.topics_of(group):
            for queue_id, offset in self._offsets.of(group, topic).items():
                queue = self._store.queue(topic, queue_id)
                entry = queue.entry(max(offset, queue.begin)) if queue is not None else None
                if entry is not None:
                    furthest = min(furthest, entry[0])
        return self._store.log.end - furthest
