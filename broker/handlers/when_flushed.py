"""Answers that wait for the disk, for requests that store something and are no sends.

With ASYNC_FLUSH they go at once, with SYNC_FLUSH when the log is on the disk up to what they stored; and never before
the topic is saved that the first of them created, or nobody could read what it stored after a crash. Sends gather their
answers by turns (`send_answers.py`); these are rare enough for a task each.

Java: store/CommitLog.java (submitFlushRequest)
"""

from __future__ import annotations

import trio

from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import FlushFailed, FlushTimeout
from rocketlet.store.message_store import MessageStore


class WhenFlushed:
    """One object for the whole broker; its nursery is the broker's."""

    def __init__(self, store: MessageStore, topics_file: JsonFile, nursery: trio.Nursery) -> None:
        self._store = store
        self._topics_file = topics_file
        self._nursery = nursery

    def answer(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> Answer | Deferred:
        """The answer once the log is safe up to `end`; `late` is its code if that takes too long."""
        sync = self._store.config.is_sync_flush
        if request.is_oneway and sync:
            self._store.want_flush()
        if request.is_oneway or not (sync or self._topics_file.dirty):
            return reply
        self._nursery.start_soon(self._answer_later, request, end, reply, late)
        return DEFERRED

    async def _answer_later(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> None:
        try:
            await self._topics_file.saved()
            if self._store.config.is_sync_flush:
                await self._store.flushed_to(end, self._store.config.sync_flush_timeout)
        except FlushTimeout as timeout:
            reply = Reply(late, reply.header, remark=str(timeout))
        except (FlushFailed, NotSaved) as failed:
            reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=str(failed))
        request.reply(reply)
