"""12 QUERY_MESSAGE, 33 VIEW_MESSAGE_BY_ID: messages by key, and by log offset.

12 answers with the newest of the time range, up to `maxNum` and the store's own limit, as whole records one after the
other, or with 22. The index may return messages that only share the key's hash, so the store compares the key itself.
33 answers with one record; offset 0 is the first one still stored.

Java: broker/processor/QueryMessageProcessor.java
"""

from __future__ import annotations

from functools import partial

from rocketlet.broker.message_topics import topics_at
from rocketlet.remoting.access import Found, subscribe
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.pulling import QueryMessageAnswerHeader, QueryMessageHeader, ViewMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore

# The maximum for a query by unique key, whatever its maxNum.
UNIQUE_KEY_MAX = 32


class Queries:
    """Lookups of messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def table(self) -> HandlerTable:
        return {
            RequestCode.QUERY_MESSAGE: Handler(
                self.by_key, QueryMessageHeader, "query", access=subscribe(topic="topic")
            ),
            RequestCode.VIEW_MESSAGE_BY_ID: Handler(
                self.by_offset, ViewMessageHeader, "query", access=subscribe(topic=Found(self._topic_at))
            ),
        }

    def _topic_at(self, header: ViewMessageHeader) -> list[str]:
        """The message's topic, whatever the header says: 4.9 clients send none."""
        return topics_at(self._store, header.offset)

    async def by_key(self, request: Request) -> Reply:
        header: QueryMessageHeader = request.header
        count = UNIQUE_KEY_MAX if header.uniqueKeyQuery else header.maxNum
        find = self._store.find_by_key
        result = await self._store.with_cold_reads(
            partial(find, header.topic, header.key, count, header.beginTimestamp, header.endTimestamp)
        )
        answer = QueryMessageAnswerHeader(result.index_timestamp, result.index_log_offset)
        if not result.records:
            return Reply(
                ResponseCode.QUERY_NOT_FOUND, answer, remark="can not find message, maybe time range not correct"
            )
        return Reply(header=answer, body=[record for _, record in reversed(result.records)])

    async def by_offset(self, request: Request) -> Reply:
        header: ViewMessageHeader = request.header
        record = await self._store.with_cold_reads(partial(self._store.record_at, header.offset))
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return Reply(body=record)
