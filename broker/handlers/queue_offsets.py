"""14 QUERY_CONSUMER_OFFSET, 15 UPDATE_CONSUMER_OFFSET, 29 SEARCH_OFFSET_BY_TIMESTAMP, 30 GET_MAX_OFFSET,
31 GET_MIN_OFFSET, 32 GET_EARLIEST_MSG_STORETIME.

14 for a group that has committed nothing is 0 on a young queue (its first message is still stored, and recent): a new
group begins at the beginning of a young topic whatever its settings, which users of RocketMQ rely on. Otherwise it is
22 and no other code, since clients understand only 22 as "none".

15 stores any value, including a smaller one or -1. Consumers send it one-way (Node's do not, but do not wait either:
version 3.4.9); only an administrator who resets a group waits for the answer, so then it is on disk.

A queue that does not exist begins and ends at 0 (30, 31), and has no first message (32: -1). 29 is the message stored
nearest to that time, the last one if all are older, as in 4.9.8; with `boundaryType` LOWER, of 5.x, the first one at
that time or later (the end of the queue if all are older), with UPPER the last one at that time or earlier.

Java: broker/processor/ConsumerManageProcessor.java, AdminBrokerProcessor.java
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from rocketlet.broker.at_once import at_once
from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.command import V3_4_9
from rocketlet.remoting.handler import DEFERRED, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.offsets import (
    OffsetAnswerHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    TimestampAnswerHeader,
    UpdateConsumerOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore


class QueueOffsets:
    """Groups' offsets, and the begins and ends of queues."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        offsets_file: JsonFile,
        store: MessageStore,
        recent_bytes: Callable[[], int],
        nursery: trio.Nursery,
    ) -> None:
        self._offsets = offsets
        self._file = offsets_file
        self._store = store
        self._recent_bytes = recent_bytes
        self._nursery = nursery

    def table(self) -> HandlerTable:
        consume, read_only = subscribe(topic="topic", group="consumerGroup"), subscribe(topic="topic")
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: Handler(
                self.query, QueryConsumerOffsetHeader, "consumer", access=consume
            ),
            RequestCode.UPDATE_CONSUMER_OFFSET: Handler(
                self.update, UpdateConsumerOffsetHeader, "consumer", access=consume
            ),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Handler(self.by_time, SearchOffsetHeader, access=read_only),
            RequestCode.GET_MAX_OFFSET: Handler(self.maximum, QueueHeader, access=read_only),
            RequestCode.GET_MIN_OFFSET: Handler(self.minimum, QueueHeader, access=read_only),
            RequestCode.GET_EARLIEST_MSG_STORETIME: Handler(self.earliest_time, QueueHeader, access=read_only),
        }

    def query(self, request: Request) -> Reply:
        header: QueryConsumerOffsetHeader = request.header
        offset = self._offsets.get(header.consumerGroup, header.topic, header.queueId)
        if offset is None:
            if not self._is_young(header.topic, header.queueId):
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
            offset = 0
        return Reply(header=OffsetAnswerHeader(offset))

    def update(self, request: Request) -> Reply | Deferred:
        header: UpdateConsumerOffsetHeader = request.header
        try:
            self._offsets.commit(header.consumerGroup, header.topic, header.queueId, header.commitOffset)
        except OffsetRefused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None
        if request.is_oneway or request.version <= V3_4_9:
            return Reply()
        self._nursery.start_soon(self._answer_when_saved, request)
        return DEFERRED

    async def _answer_when_saved(self, request: Request) -> None:
        self._file.changed()
        try:
            await self._file.saved()
        except NotSaved as error:
            request.reply(Reply(ResponseCode.SYSTEM_ERROR, remark=str(error)))
        else:
            request.reply(Reply())

    async def by_time(self, request: Request) -> Reply:
        header: SearchOffsetHeader = request.header
        return Reply(header=OffsetAnswerHeader(await self._store.with_cold_reads(partial(self._by_time, header))))

    def _by_time(self, header: SearchOffsetHeader) -> int:
        store, place = self._store, (header.topic, header.queueId)
        match (header.boundaryType or "").upper():
            case "LOWER":
                return store.offset_at_time(*place, header.timestamp)
            case "UPPER":
                return max(store.offset_at_time(*place, header.timestamp + 1) - 1, store.queue_begin(*place))
            case _:
                return store.nearest_offset(*place, header.timestamp)

    def maximum(self, request: Request) -> Reply:
        header: QueueHeader = request.header
        return Reply(header=OffsetAnswerHeader(self._store.queue_end(header.topic, header.queueId)))

    def minimum(self, request: Request) -> Reply:
        header: QueueHeader = request.header
        return Reply(header=OffsetAnswerHeader(self._store.queue_begin(header.topic, header.queueId)))

    async def earliest_time(self, request: Request) -> Reply:
        header: QueueHeader = request.header
        look_up = partial(self._store.earliest_time, header.topic, header.queueId)
        return Reply(header=TimestampAnswerHeader(await self._store.with_cold_reads(look_up)))

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's first message is still stored and recent, or the queue is empty."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or queue.end == 0:
            return True
        if queue.begin > 0:
            return False
        first = at_once(self._store, partial(self._store.entry_at, queue, 0))
        return first is not None and self._store.log.end - first[0] <= self._recent_bytes()
