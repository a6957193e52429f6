"""Answers that wait for the disk, for requests that store something and are no sends.

With ASYNC_FLUSH they go at once, with SYNC_FLUSH when the log is on the disk up to what they stored. Sends gather their
answers by turns (`send_answers.py`); these are rare enough for a task each.

Java: store/CommitLog.java (submitFlushRequest)
"""

from __future__ import annotations

import trio

from remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from remoting.response_codes import ResponseCode
from store.errors import FlushFailed, FlushTimeout
from store.message_store import MessageStore


class WhenFlushed:
    """One object for the whole broker; its nursery is the broker's."""

    def __init__(self, store: MessageStore, nursery: trio.Nursery) -> None:
        self._store = store
        self._nursery = nursery

    def answer(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> Answer | Deferred:
        """The answer once the log is safe up to `end`; `late` is its code if that takes too long."""
        if not self._store.config.is_sync_flush:
            return reply
        if request.is_oneway:
            self._store.want_flush()
            return reply
        self._nursery.start_soon(self._answer_later, request, end, reply, late)
        return DEFERRED

    async def _answer_later(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> None:
        try:
            await self._store.flushed_to(end, self._store.config.sync_flush_timeout)
        except FlushTimeout as timeout:
            reply = Reply(late, reply.header, remark=str(timeout))
        except FlushFailed as failed:
            reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=str(failed))
        request.reply(reply)
