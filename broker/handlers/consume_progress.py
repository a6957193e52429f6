"""Consumers' progress: 208 GET_CONSUME_STATS, 317 GET_BROKER_CONSUME_STATS, 300 QUERY_TOPIC_CONSUME_BY_WHO,
303 QUERY_CONSUME_TIME_SPAN, 308 QUERY_CORRECTION_OFFSET, 314 CLONE_GROUP_OFFSET.

208 returns the end of each read queue and the group's offset in it, for one topic or for all in which the group has
offsets; deleted topics, and those the online group no longer subscribes to, are omitted. 317 does so for all groups.
The copies made by 314 are on disk before its answer.

Java: broker/processor/AdminBrokerProcessor.java
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rocketlet.broker.clients import Clients
from rocketlet.broker.consumer_lag import ConsumerLag
from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.handlers.acknowledged import acknowledged
from rocketlet.broker.identity import Identity
from rocketlet.broker.json_file import JsonFile
from rocketlet.broker.statistics import Carried, Statistics
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common.json_pieces import in_pieces
from rocketlet.common.message import MessageQueue
from rocketlet.common.moment import moment_of
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import Text, Turns, collect, one_at_a_time
from rocketlet.remoting.protocol.inspection import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpanBody,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    GroupList,
    OffsetWrapper,
    QueryConsumeTimeSpanHeader,
    QueueTimeSpan,
    TopicHeader,
)
from rocketlet.remoting.protocol.offsets import (
    CloneGroupOffsetHeader,
    CorrectionOffsetBody,
    QueryCorrectionOffsetHeader,
)
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore

# 308's answer for a queue in which the compared group lags behind all others.
NOTHING_TO_CORRECT = (1 << 63) - 1


class ConsumeProgress:
    """Groups' offsets compared with the ends of queues."""

    def __init__(
        self,
        identity: Identity,
        topics: TopicTable,
        groups: SubscriptionGroups,
        clients: Clients,
        lag: ConsumerLag,
        offsets: ConsumerOffsets,
        offsets_file: JsonFile,
        store: MessageStore,
        statistics: Statistics,
        clock: Callable[[], int],
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._lag = lag
        self._offsets = offsets
        self._offsets_file = offsets_file
        self._store = store
        self._statistics = statistics
        self._clock = clock

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_CONSUME_STATS: Handler(self.of_group, GetConsumeStatsHeader),
            RequestCode.GET_BROKER_CONSUME_STATS: Handler(self.of_all_groups, GetBrokerConsumeStatsHeader),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Handler(self.consuming_groups, TopicHeader),
            RequestCode.QUERY_CONSUME_TIME_SPAN: Handler(self.time_spans, QueryConsumeTimeSpanHeader),
            RequestCode.QUERY_CORRECTION_OFFSET: Handler(self.correction, QueryCorrectionOffsetHeader),
            RequestCode.CLONE_GROUP_OFFSET: Handler(self.clone, CloneGroupOffsetHeader),
        }

    @one_at_a_time
    async def of_group(self, request: Request) -> Reply:
        header: GetConsumeStatsHeader = request.header
        stats, turns = ConsumeStats(), Turns()
        for topic in self._lag.topics_of(header.consumerGroup, header.topic):
            stats.offsetTable.update(await self._progress(turns, header.consumerGroup, topic, topic.read))
            stats.consumeTps += await self._consume_tps(turns, header.consumerGroup, topic.name)
        return Reply(body=await collect(stats.pieces()))

    @one_at_a_time
    async def of_all_groups(self, request: Request) -> Reply:
        header: GetBrokerConsumeStatsHeader = request.header
        text, total_lag, turns, separator = Text(), 0, Turns(), b""
        text.add(ConsumeStatsList.begin(self._identity.address))
        for group in list(self._groups):
            stats = []
            for topic in self._lag.topics_of(group.groupName):
                if header.isOrder and not topic.order:
                    continue
                table = await self._progress(turns, group.groupName, topic, topic.write)
                total_lag += sum(queue.brokerOffset - queue.consumerOffset for queue in table.values())
                stats.append(ConsumeStats(table, await self._consume_tps(turns, group.groupName, topic.name)))
            text.add(separator)
            for piece in ConsumeStatsList.entry(group.groupName, stats):
                text.add(piece)
                await turns.pause()
            separator = b","
        text.add(ConsumeStatsList.end(total_lag))
        return Reply(body=text.buffers())

    def consuming_groups(self, request: Request) -> Reply:
        header: TopicHeader = request.header
        groups = {*self._offsets.groups_of(header.topic), *self._clients.consumers.of_topic(header.topic)}
        return Reply(body=GroupList(sorted(groups)).to_json())

    @one_at_a_time
    async def time_spans(self, request: Request) -> Reply:
        header: QueryConsumeTimeSpanHeader = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans, turns = [], Turns()
        for queue_id in range(topic.write):
            spans.append(
                await self._store.with_cold_reads(partial(self._time_span, header.group, header.topic, queue_id))
            )
            await turns.pause()
        return Reply(body=await collect(ConsumeTimeSpanBody.pieces(in_pieces(spans))))

    @one_at_a_time
    async def correction(self, request: Request) -> Reply:
        header: QueryCorrectionOffsetHeader = request.header
        left_out, turns = set((header.filterGroups or "").split(",")), Turns()
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group not in left_out:
                for queue_id, offset in list(self._offsets.of(group, header.topic).items()):
                    await turns.pause()
                    if offset >= self._store.queue_begin(header.topic, queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.of(header.compareGroup, header.topic).items():
            if least.get(queue_id, 0) > offset:
                least[queue_id] = NOTHING_TO_CORRECT
        return Reply(body=CorrectionOffsetBody(least).to_json())

    async def clone(self, request: Request) -> Reply:
        header: CloneGroupOffsetHeader = request.header
        turns = Turns()
        for topic in self._lag.topics_of(header.srcGroup, header.topic, offline=header.offline):
            for queue_id, offset in list(self._offsets.of(header.srcGroup, topic.name).items()):
                await turns.pause()
                try:
                    self._offsets.commit(header.destGroup, topic.name, queue_id, offset)
                except OffsetRefused as refused:
                    raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None
            self._offsets_file.changed()
        await acknowledged(self._offsets_file)
        return Reply()

    async def _progress(self, turns: Turns, group: str, topic: Topic, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        store, table = self._store, {}
        for queue_id in range(queues):
            await turns.pause()
            consumed, last_timestamp = self._offsets.get(group, topic.name, queue_id) or 0, 0
            if consumed > 0:
                last_timestamp = await store.with_cold_reads(
                    partial(store.store_time_at, topic.name, queue_id, consumed - 1)
                )
            queue = MessageQueue(topic.name, self._identity.name, queue_id)
            table[queue] = OffsetWrapper(store.queue_end(topic.name, queue_id), consumed, max(last_timestamp, 0))
        return table

    async def _consume_tps(self, turns: Turns, group: str, topic: str) -> float:
        carried = Carried("messages")
        for flow in self._statistics.flows_of("GROUP_GET_NUMS", f"{topic}@{group}"):
            carried.add(flow, "minute")
            await turns.pause()
        return carried.rate("minute").tps

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        end, consumed = store.queue_end(topic, queue_id), self._offsets.get(group, topic, queue_id) or 0
        first = store.earliest_time(topic, queue_id)
        last = store.store_time_at(topic, queue_id, end - 1)
        consumed_time = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else first
        delay = self._clock() - store.store_time_at(topic, queue_id, consumed) if consumed < end else 0
        return QueueTimeSpan(
            WireQueue(self._identity.name, queue_id, topic),
            first,
            last,
            consumed_time,
            delay,
            _text(first),
            _text(last),
            _text(consumed_time),
        )


def _text(ms: int) -> str:
    """RocketMQ's display format for times: 2026-11-18#12:40:06:869."""
    moment = moment_of(ms)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{max(ms, 0) % 1000:03d}"
