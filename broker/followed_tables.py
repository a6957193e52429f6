"""A slave's tables follow its master's: topics, groups, consumer offsets, filters, progress of delays, queue locks.

Only those of a master whose log is followed, so that a master that lost its disk does not wipe the tables. One of our
masters is asked for changes and sends them at once (`protocol/replication.py`); RocketMQ's is asked for whole tables
every ten seconds, as RocketMQ's slave does. Then:

- topics and groups: the master's are adopted. Deletions are known from tombstones or, for a RocketMQ master, from an
  entry's absence after it was in the table on the same connection. An empty table means nothing.
- offsets: the newer one wins. Ours carry stamps (`consumer_offsets.py`), and offsets committed here while the master
  was away are sent to it. A RocketMQ master's offset wins if it has changed since it was last reported; the first one
  reported wins if it is higher, since the master may have restarted with older saved offsets.
- delays: the master's progress is adopted, because only the master delivers.
- locks of queues consumed in order: kept in case this slave becomes the master (`queue_locks.py`).

Offsets beyond a queue's end here, because the log lags, are clamped where they are used.

Java: broker/slave/SlaveSynchronize.java
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TypeVar

import msgspec
import trio

from rocketlet.broker.consumer_offsets import Key, OffsetChange, OffsetRefused
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.broker.subscription_groups import read_group
from rocketlet.broker.tables import Tables
from rocketlet.broker.tombstones import OFFSETS, TOPIC, Tombstone
from rocketlet.broker.topic_table import Topic, read_topic
from rocketlet.common.clock import WallClock
from rocketlet.common.topic import InvalidName
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import BodyError, RemotingError
from rocketlet.remoting.in_turns import Turns, run_all
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.configuration import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfigTable,
)
from rocketlet.remoting.protocol.offsets import DelayOffsetTable, offset_rows
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.protocol.replication import TablesNews, TablesSeen
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode, response_name
from rocketlet.replication.continuity import MasterAway, ends_of
from rocketlet.replication.follow import Followed
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.followed_tables")

EVERY_SECONDS = 10.0  # RocketMQ's pause between two rounds
MIN_PAUSE = 0.2  # between two requests for changes: consumers' commits never end
HOLD_MS = 5000
CALL_SECONDS = 10.0
OFFSETS_AT_ONCE = 5000
_AT_ONCE = 1000  # entries before other tasks run

B = TypeVar("B", bound=Body)


class NotReported(Exception):
    """The master did not return a table."""


class FollowedTables:
    """See the module. One object while a broker is a slave."""

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        pool: ConnectionPool,
        follower: Followed,
        clock: WallClock,
        locks: QueueLocks[WireQueue],
    ) -> None:
        self._clock = clock
        self._locks = locks
        self._tables = tables
        self._store = store
        self._pool = pool
        self._follower = follower
        self._seen = TablesSeen()
        self._pushed = tables.offsets.version  # the master has our offsets up to here
        # The contents of the master's tables at the last request.
        self._topics_of_master: set[str] = set()
        self._groups_of_master: set[str] = set()
        self._forget_reported()
        self._pending: list[Tombstone] = []
        self._trouble = ""
        self.master_end = -1
        """Where the master's log ended when it was last asked; -1: never."""
        self.asked_at = 0.0
        self.master_is_sync = False
        """Whether the master, as far as is known, is a SYNC_MASTER; not known of RocketMQ's."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            while (master := self._follower.following) is None:
                self._seen = TablesSeen()
                self._forget_reported()
                await self._follower.changed.park()
            try:
                pause = await self._round(master.address)
                self._trouble = ""
            except (RemotingError, BodyError, MasterAway, NotReported) as error:
                pause = EVERY_SECONDS / 2
                if str(error) != self._trouble:
                    log.warning("the tables of master %s are not followed: %s", master.address, error)
                    self._trouble = str(error)
            await self._apply_pending()
            await trio.sleep(pause)

    def _forget_reported(self) -> None:
        """Forget what a RocketMQ master's tables held in the last round on this connection."""
        self._reported_topics: set[str] = set()
        self._reported_groups: set[str] = set()
        self._reported_offsets: dict[Key, int] = {}

    async def _round(self, address: str) -> float:
        """Apply changes. Returns the pause until the next round.

        Raises RemotingError, BodyError, NotReported."""
        seen = self._seen
        changes, upto = self._tables.offsets.changed_since(self._pushed, OFFSETS_AT_ONCE)
        own_changes = [
            (change.group, change.topic, change.queue_id, change.offset, change.stamp)
            for change in changes
            if change.own
        ]
        seen.offsets, seen.holdMillis = own_changes, 0 if own_changes else HOLD_MS
        answer = await self._pool.call(
            address, request(RequestCode.FOLLOW_TABLES, None, seen.to_json()), CALL_SECONDS + HOLD_MS / 1000
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            await self._round_with_rocketmq(address)
            self.master_end, self.asked_at = (await ends_of(self._pool, address)).end, trio.current_time()
            return EVERY_SECONDS
        updates = TablesNews.from_json(_checked(answer, RequestCode.FOLLOW_TABLES).body)
        self._pushed = upto
        await self._take(address, updates)
        self.master_end, self.asked_at = updates.logEnd, trio.current_time()
        self.master_is_sync = updates.syncMaster
        return 0.0 if updates.more else MIN_PAUSE

    # ---- a master of ours

    async def _take(self, address: str, updates: TablesNews) -> None:
        seen, tables = self._seen, self._tables
        if updates.run != seen.run or updates.topics != seen.topics:
            topics = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
            await self._take_topics(topics, ())
        if updates.run != seen.run or updates.groups != seen.groups:
            groups = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable)
            await self._take_groups(groups, ())
        turns = Turns()
        for stone in updates.gone:
            await turns.pause()
            await self._apply_tombstone(Tombstone(*stone))
        for number, row in enumerate(updates.offsets):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                tables.offsets.merge(OffsetChange(*row))
            except OffsetRefused as refused:
                log.warning("an offset of the master is left out: %s", refused)
        if updates.filterTable is not None:
            tables.filters.load(updates.filterTable, self._clock())
        for level, offset in (updates.delayTable or {}).items():
            tables.delays.set(level, offset)
        if updates.lockTable is not None:
            self._locks.carry(
                [
                    (group, WireQueue(name, queue, topic), client)
                    for group, topic, name, queue, client in updates.lockTable
                ]
            )
        self._seen = TablesSeen(
            updates.run, updates.topics, updates.groups, updates.filters, updates.delays, updates.offsetsSeen,
            updates.tombstones, locks=updates.locks,
        )  # fmt: skip

    async def _apply_tombstone(self, stone: Tombstone) -> None:
        """Delete what the master deleted. Entries now in its tables were recreated since, and stay."""
        tables = self._tables
        if stone.kind == TOPIC:
            await run_all(tables.offsets.forgetting(topic=stone.name))
            if stone.name not in self._topics_of_master and tables.topics.get(stone.name) is not None:
                tables.topics.follow((), [stone.name], tables.topics.version)
            self._pending.append(stone)  # its messages may not all have arrived yet
        elif stone.kind == OFFSETS:
            await run_all(tables.offsets.forgetting(group=stone.name))
        elif stone.name not in self._groups_of_master and tables.groups.get(stone.name) is not None:
            tables.groups.follow((), [stone.name], tables.groups.version)
        if not tables.tombstones.has(stone):
            tables.add_tombstone(stone.kind, stone.name, stone.log_offset)

    async def _apply_pending(self) -> None:
        """Delete the queues of deleted topics once the log is as far as the master's was; recreated ones stay."""
        end = self._store.log.end
        due = {stone.name: stone.log_offset for stone in self._pending if stone.log_offset <= end}
        if due:
            await self._store.drop_where(lambda queue: queue.topic in due and queue.log_end() <= due[queue.topic])
            self._pending = [stone for stone in self._pending if stone.log_offset > end]

    # ---- a master of RocketMQ's

    async def _round_with_rocketmq(self, address: str) -> None:
        tables = self._tables
        topics = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
        if topics.topicConfigTable:
            removed = self._reported_topics - topics.topicConfigTable.keys()
            await self._take_topics(topics, removed)
            for name in removed:
                await run_all(tables.offsets.forgetting(topic=name))
            if removed:
                await self._store.drop_where(lambda queue: queue.topic in removed)
            self._reported_topics = set(topics.topicConfigTable)
        await self._take_offsets(await self._body(address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable)
        for level, offset in delays.offsetTable.items():
            tables.delays.set(int(level), offset)
        groups = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable)
        if groups.subscriptionGroupTable:
            removed = self._reported_groups - groups.subscriptionGroupTable.keys()
            await self._take_groups(groups, removed)
            self._reported_groups = set(groups.subscriptionGroupTable)

    async def _take_offsets(self, body: bytes) -> None:
        heard, offsets = self._reported_offsets, self._tables.offsets
        new_offsets: dict[Key, int] = {}
        turns = Turns()
        for name, queues in offset_rows(body):
            await turns.pause()
            topic, _, group = name.partition("@")
            for queue_id, offset in queues.items():
                new_offsets[group, topic, queue_id] = offset
        for number, (key, offset) in enumerate(new_offsets.items()):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            present, reported = offsets.of(key[0], key[1]).get(key[2]), heard.get(key)
            if offset not in (present, reported) and (reported is not None or present is None or offset > present):
                try:
                    offsets.commit(*key, offset)
                except OffsetRefused as refused:
                    log.warning("an offset of the master is left out: %s", refused)
        if new_offsets:
            self._reported_offsets = new_offsets

    # ---- both

    async def _take_topics(self, body: TopicConfigTable, removed: Collection[str]) -> None:
        topics: list[Topic] = []
        table = self._tables.topics
        for number, (name, config) in enumerate(body.topicConfigTable.items()):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                topic = read_topic(name, msgspec.to_builtins(config))
            except (msgspec.ValidationError, InvalidName) as error:
                log.warning("topic %r of the master is left out: %s", name, error)
                continue
            old = table.get(topic.name)
            if old is None or old.to_config() != topic.to_config():
                topics.append(topic)
        self._topics_of_master = set(body.topicConfigTable)
        if topics or removed or table.version != body.dataVersion:
            table.follow(topics, removed, body.dataVersion)

    async def _take_groups(self, body: SubscriptionGroupTable, removed: Collection[str]) -> None:
        groups: list[SubscriptionGroupConfig] = []
        table = self._tables.groups
        for number, (name, config) in enumerate(body.subscriptionGroupTable.items()):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                group = read_group(msgspec.to_builtins(config))
            except (msgspec.ValidationError, InvalidName) as error:
                log.warning("group %r of the master is left out: %s", name, error)
                continue
            if table.get(group.groupName) != group:
                groups.append(group)
        self._groups_of_master = set(body.subscriptionGroupTable)
        if groups or removed or table.version != body.dataVersion:
            table.follow(groups, removed, body.dataVersion, body.forbiddenTable)

    async def _ask(self, address: str, code: RequestCode, kind: type[B]) -> B:
        return kind.from_json(await self._body(address, code))

    async def _body(self, address: str, code: RequestCode) -> bytes:
        return _checked(await self._pool.call(address, request(code), CALL_SECONDS), code).body


def _checked(answer: Command, code: RequestCode) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise NotReported(
            f"{request_name(code)} is answered {response_name(answer.code)}: {answer.remark or 'no remark'}"
        )
    return answer
