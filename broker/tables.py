"""A broker's tables beside its messages: topics, groups, offsets, filters, progress of delays; and their files.

Topics and groups are written as soon as they change, and before the answer to an administrator. Offsets and the like
change all the time and are written periodically, and when the broker stops.

Java: broker/BrokerController.java (initialize, the scheduled persists)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.delay_offsets import DelayOffsets
from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.broker.popping.modes import RequestModes
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.tombstones import Tombstones
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.json_pieces import LINES
from rocketlet.common.topic import DLQ_PREFIX, RETRY_PREFIX
from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import TOMBSTONES
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.tables")

DELAY_OFFSET_SECONDS = 10.0
FILTER_SECONDS = 10.0
LOOK_SECONDS = 10.0  # how often it is looked whether the files are still there


class ChangeSignal:
    """Announces changes; costs next to nothing while no task waits."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()

    def notify(self) -> None:
        if self._waiting:
            self._waiting.unpark_all()

    async def wait(self) -> None:
        await self._waiting.park()


class Tables:
    """All tables of one broker. `on_topics` is called when the topic table has changed."""

    def __init__(
        self, settings: Settings, disk: Disk, root: str, clock: Callable[[], int], on_topics: Callable[[], None]
    ) -> None:
        config = settings.now
        self._settings = settings
        self._clock = clock
        self._on_topics = on_topics
        self.topics = TopicTable(settings, clock, self._topics_changed)
        self.groups = SubscriptionGroups(settings, clock, self._groups_changed)
        self.offsets = ConsumerOffsets(clock)
        self.filters = ConsumerFilters(
            Bloom.for_groups(config.expect_consumer_num_use_filter, config.max_error_rate_of_bloom_filter)
        )
        self.delays = DelayOffsets()
        self.modes = RequestModes()
        self.tombstones = Tombstones()
        self.topics_file = JsonFile(
            disk, f"{root}/config/topics.json", pieces=lambda: self.topics.pieces(separator=LINES)
        )
        self.groups_file = JsonFile(
            disk, f"{root}/config/subscriptionGroup.json", pieces=lambda: self.groups.pieces(LINES)
        )
        self.offsets_file = JsonFile(
            disk, f"{root}/config/consumerOffset.json", pieces=lambda: self.offsets.pieces(LINES)
        )
        self.filters_file = JsonFile(
            disk, f"{root}/config/consumerFilter.json", pieces=lambda: self.filters.pieces(LINES)
        )
        self.delays_file = JsonFile(disk, f"{root}/config/delayOffset.json", self.delays.to_body)
        self.modes_file = JsonFile(
            disk, f"{root}/config/messageRequestMode.json", lambda: self.modes.to_body().builtins()
        )
        self.tombstones_file = JsonFile(disk, f"{root}/{TOMBSTONES}", self.tombstones.to_body)
        self.changes = ChangeSignal()
        """Wakes whoever waits for a change of any table."""
        self.offsets.on_change = self.changes.notify
        # The last written versions of tables that count their own changes.
        self._written = {self.offsets_file: 0, self.filters_file: 0, self.delays_file: 0}

    def load(self, broker_name: str) -> None:
        """Read all files; a missing or broken one is logged and starts empty. Then create the broker's own topics."""
        self.topics.load(self.topics_file.load())
        self.groups.load(self.groups_file.load())
        self.offsets.load(self.offsets_file.load())
        self.filters.load(self.filters_file.load(), self._clock())
        self.delays.load(self.delays_file.load())
        self.modes.load(self.modes_file.load())
        self.tombstones.load(self.tombstones_file.load())
        for file, version in self._versions().items():
            self._written[file] = version
        self.topics.create_own(broker_name)
        log.info(
            "loaded %d topics, %d groups, %d consumer offsets, %d filters",
            len(self.topics),
            len(self.groups),
            len(self.offsets),
            len(self.filters),
        )

    async def run(self) -> None:
        """Keep the files up to date, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.topics_file.keep_saving)
            nursery.start_soon(self.groups_file.keep_saving)
            nursery.start_soon(self.tombstones_file.keep_saving)
            nursery.start_soon(
                self._save_regularly,
                self.offsets_file,
                lambda: self._settings.now.flush_consumer_offset_interval / 1000,
            )
            nursery.start_soon(self._save_regularly, self.delays_file, lambda: DELAY_OFFSET_SECONDS)
            nursery.start_soon(self._save_regularly, self.filters_file, lambda: FILTER_SECONDS)
            nursery.start_soon(self._look_regularly)

    async def save_all(self) -> None:
        """Write everything that has changed, or is not there any more: the broker stops."""
        for file in self._files():
            file.look()
            try:
                await self._save(file)
            except NotSaved as error:
                log.error("%s", error)

    def add_tombstone(self, kind: str, name: str, log_offset: int) -> None:
        """Record for slaves that something was deleted, at this end of the log."""
        self.tombstones.add(kind, name, log_offset)
        self.tombstones_file.changed()
        self.changes.notify()

    async def lower_tombstones(self, store: MessageStore) -> None:
        """After a power cut, or where a slave becomes the master, the log may end before a deletion that is noted: then
        all of it is from before the deletion, and what comes now, at the same offsets, is not."""
        end = store.log.end
        lowered = self.tombstones.lower(end)
        if not lowered:
            return
        self.tombstones_file.changed()
        self.changes.notify()
        await store.drop_where(lambda queue: queue.topic in lowered and queue.log_end() <= end)
        try:
            await self.tombstones_file.saved()
        except NotSaved as error:
            log.error("%s; after a kill, messages of topics that are made again may be taken for deleted ones", error)

    def fit(self, store: MessageStore) -> None:
        """Make the tables consistent with the log when a slave becomes the master: the master may have gone before all
        its tables were replicated. Topics with messages are created, offsets beyond their queues are moved back."""
        deleted = self.tombstones.deleted_topics()
        queue_counts: dict[str, int] = {}
        for queue in store.queues:
            if self.topics.get(queue.topic) is None and queue.log_end() > deleted.get(queue.topic, 0):
                queue_counts[queue.topic] = max(queue_counts.get(queue.topic, 0), queue.queue_id + 1)
        least = self._settings.now.default_topic_queue_nums
        for name, queues in queue_counts.items():
            is_one_queued = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
            self.topics.create(name, queues if is_one_queued else max(queues, least), reason="for messages in the log")
        moved = self.offsets.keep_below(store.queue_end)
        if moved:
            log.warning("%d consumer offsets were beyond the ends of their queues, and were moved there", moved)

    def _topics_changed(self) -> None:
        self.topics_file.changed()
        self.changes.notify()
        self._on_topics()

    def _groups_changed(self) -> None:
        self.groups_file.changed()
        self.changes.notify()

    def _files(self) -> list[JsonFile]:
        return [self.topics_file, self.groups_file, self.modes_file, self.tombstones_file, *self._written]

    def _versions(self) -> dict[JsonFile, int]:
        return {
            self.offsets_file: self.offsets.version,
            self.filters_file: self.filters.version,
            self.delays_file: self.delays.version,
        }

    async def _save_regularly(self, file: JsonFile, pause: Callable[[], float]) -> None:
        while True:
            await trio.sleep(pause())
            self.filters.forget_old(self._clock(), self._settings.now.filter_data_clean_time_span)
            try:
                await self._save(file)
            except NotSaved as error:
                log.error("%s; next try in %g s", error, pause())

    async def _look_regularly(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            for file in self._files():
                file.look()

    async def _save(self, file: JsonFile) -> None:
        version = self._versions().get(file, 0)
        if version != self._written.get(file, 0):
            file.changed()
        await file.saved()
        if file in self._written:
            self._written[file] = version
