"""The store: 202 GET_TOPIC_STATS_INFO, 321 QUERY_CONSUME_QUEUE, 43 GET_ALL_CONSUMER_OFFSET,
306 CLEAN_EXPIRED_CONSUMEQUEUE, 316 CLEAN_UNUSED_TOPIC, 329 DELETE_EXPIRED_COMMITLOG.

202 returns begin, end and last store time of each write queue. 321 shows entries of a queue, and of those with an
extension what it holds and whether it passes the group's filter; a missing index is a success with a remark and no
body, as in RocketMQ. 306 deletes queue files whose messages are gone, 316 the queues of
topics that are not in the table, 329 expired log files.

Java: broker/processor/AdminBrokerProcessor.java
"""

from __future__ import annotations

import logging
from functools import partial

from rocketlet.broker.clients import Clients
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.filter.extended_entry import shown
from rocketlet.broker.filter.message_filter import EVERYTHING, MessageFilter, by_consumer_filter, by_tags
from rocketlet.broker.handlers.membership import data_of
from rocketlet.broker.identity import Identity
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import Turns, collect, one_at_a_time
from rocketlet.remoting.protocol.inspection import (
    ConsumeQueueBody,
    QueryConsumeQueueHeader,
    TopicHeader,
    TopicOffset,
    TopicStatsTable,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.handlers.store_admin")

MAX_ENTRIES = 10_000


class StoreAdmin:
    """The store, as administrators see and clean it."""

    def __init__(
        self,
        identity: Identity,
        topics: TopicTable,
        clients: Clients,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        store: MessageStore,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._clients = clients
        self._filters = filters
        self._offsets = offsets
        self._store = store

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: Handler(self.consumer_offsets),
            RequestCode.GET_TOPIC_STATS_INFO: Handler(self.topic_stats, TopicHeader),
            RequestCode.QUERY_CONSUME_QUEUE: Handler(self.queue_entries, QueryConsumeQueueHeader),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Handler(self.clean_queues),
            RequestCode.CLEAN_UNUSED_TOPIC: Handler(self.clean_unused_topics),
            RequestCode.DELETE_EXPIRED_COMMITLOG: Handler(self.delete_expired_log),
        }

    @one_at_a_time
    async def topic_stats(self, request: Request) -> Reply:
        header: TopicHeader = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        store, table, turns = self._store, {}, Turns()
        for queue_id in range(topic.write):
            await turns.pause()
            end, last = store.queue_end(topic.name, queue_id), 0
            if end > 0:
                last = max(await store.with_cold_reads(partial(store.store_time_at, topic.name, queue_id, end - 1)), 0)
            queue = MessageQueue(topic.name, self._identity.name, queue_id)
            table[queue] = TopicOffset(last, end, self._store.queue_begin(topic.name, queue_id))
        return Reply(body=await collect(TopicStatsTable(table).pieces()))

    @one_at_a_time
    async def consumer_offsets(self, request: Request) -> Reply:
        return Reply(body=await collect(self._offsets.pieces()))

    async def queue_entries(self, request: Request) -> Reply:
        header: QueryConsumeQueueHeader = request.header
        queue = self._store.queue(header.topic, header.queueId)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{header.queueId}@{header.topic} is not exist!")
        if not queue.begin <= header.index < queue.end:
            return Reply(remark=f"Index {header.index} of {header.queueId}@{header.topic} is not exist!")
        body = ConsumeQueueBody(queue.end, queue.begin)
        passes: MessageFilter | None = None
        if header.consumerGroup:
            group = self._clients.consumers.get(header.consumerGroup)
            subscription = group.subscriptions.get(header.topic) if group is not None else None
            if subscription is None:
                body.filterData = f"{header.consumerGroup}@{header.topic} is not online!"
            else:
                body.subscriptionData = data_of(subscription)
                body.filterData = self._filters.text(header.topic, header.consumerGroup)
                passes = self._filter_of(subscription, header.consumerGroup)
        stop = min(queue.end, header.index + max(1, min(header.count, MAX_ENTRIES)))
        turns = Turns()
        for offset in range(header.index, stop):
            await turns.pause()
            entry = await self._store.with_cold_reads(partial(self._store.entry_at, queue, offset))
            if entry is not None:
                body.queueData.append(shown(entry, queue.ext, passes))
        return Reply(body=body.to_json())

    def _filter_of(self, subscription: Subscription, group: str) -> MessageFilter:
        """Those tests of a group's filter that need no record."""
        if subscription.expression_type == TAG:
            return by_tags(subscription)
        known = self._filters.get(subscription.topic, group)
        return EVERYTHING if known is None else by_consumer_filter(known, self._filters.bloom)

    async def clean_queues(self, request: Request) -> Reply:
        log.info("%s asks to delete queue files whose messages are gone", request.connection.peer)
        await self._store.clean_expired_queues()
        return Reply()

    async def clean_unused_topics(self, request: Request) -> Reply:
        log.info("%s asks to delete the queues of topics that are gone", request.connection.peer)
        await self._store.clean_unused(lambda name: self._topics.get(name) is not None)
        return Reply()

    async def delete_expired_log(self, request: Request) -> Reply:
        log.info("%s asks to delete log files past their time", request.connection.peer)
        await self._store.delete_expired()
        return Reply()
