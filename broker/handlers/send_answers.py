"""What a stored send is answered, and when: at once, or when the disk has it.

With SYNC_FLUSH the answers of one turn wait together, in one task; a message with WAIT=false does not wait. Codes: 0
stored as safely as asked; 10 the disk did not confirm within `syncFlushTimeout`, but may yet; 11 a SYNC_MASTER has no
slave that follows. All of them carry the same fields. A flush that failed is code 1: what the disk refused is never
acknowledged, and the broker ends.

Java: broker/processor/SendMessageProcessor.java (handlePutMessageResult), store/CommitLog.java (submitFlushRequest)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from broker.config import Settings
from broker.json_file import JsonFile, NotSaved
from broker.topic_table import Topic
from remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from remoting.protocol.sending import SendMessageAnswerHeader, SendRefusedHeader
from remoting.response_codes import ResponseCode
from store.config import BrokerRole
from store.errors import FlushFailed, FlushTimeout
from store.message_store import MessageStore


@dataclass(slots=True)
class Stored:
    """A message in the log whose answer is still to come. For a batch: all ids, the first offset, the last end."""

    request: Request
    message_id: str
    queue_id: int
    queue_offset: int
    end: int


class SendAnswers:
    """Answers sends; one object for the whole broker."""

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        topics_file: JsonFile,
        announced: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics_file = topics_file
        self._announced = announced
        self._nursery = nursery
        self._waiting: list[Stored] = []

    def at_once(self) -> bool:
        """Whether nothing has to be waited for, nor told but success."""
        config = self._store.config
        return not config.is_sync_flush and config.broker_role is not BrokerRole.SYNC_MASTER

    def refused_header(self) -> SendRefusedHeader:
        """What a refusal says all the same."""
        return SendRefusedHeader(self._settings.now.region_id, "true" if self._settings.now.trace_on else "false")

    def answer(self, stored: Stored, topic: Topic, *, wait: bool) -> Answer | Deferred:
        """The answer, or DEFERRED where it has to wait."""
        if not topic.saved:
            self._nursery.start_soon(self._answer_when_saved, stored, topic, wait)
            return DEFERRED
        if not wait:
            if self._store.config.is_sync_flush:
                self._store.want_flush()
            return self._reply(stored, ResponseCode.SUCCESS)
        if self._store.config.is_sync_flush:
            self._waiting.append(stored)
            return DEFERRED
        return self._reply(stored, self._confirmed())

    def after_turn(self) -> None:
        """Have those of this turn that wait for the disk answered together."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._nursery.start_soon(self._answer_when_flushed, waiting)

    async def _answer_when_flushed(self, waiting: list[Stored]) -> None:
        try:
            await self._store.flushed_to(waiting[-1].end, self._store.config.sync_flush_timeout)
        except FlushTimeout as timeout:
            for stored in waiting:
                late = stored.end > self._store.flushed.value
                code = ResponseCode.FLUSH_DISK_TIMEOUT if late else self._confirmed()
                stored.request.reply(self._reply(stored, code, str(timeout) if late else None))
        except FlushFailed as failed:
            for stored in waiting:
                stored.request.reply(Reply(ResponseCode.SYSTEM_ERROR, self.refused_header(), remark=str(failed)))
        else:
            for stored in waiting:
                stored.request.reply(self._reply(stored, self._confirmed()))

    async def _answer_when_saved(self, stored: Stored, topic: Topic, wait: bool) -> None:
        """The first sends of a topic: not acknowledged before the topic itself is on the disk.

        Nor before the name servers know it, if they answer: who has just sent will want to consume.
        """
        try:
            await self._topics_file.saved()
        except NotSaved as error:
            stored.request.reply(Reply(ResponseCode.SYSTEM_ERROR, self.refused_header(), remark=str(error)))
            return
        await self._announced()
        topic.set_saved(True)
        if wait and self._store.config.is_sync_flush:
            await self._answer_when_flushed([stored])
        else:
            stored.request.reply(self._reply(stored, self._confirmed() if wait else ResponseCode.SUCCESS))

    def _confirmed(self) -> ResponseCode:
        """A SYNC_MASTER promises a copy at a slave, and there is none."""
        if self._store.config.broker_role is BrokerRole.SYNC_MASTER:
            return ResponseCode.SLAVE_NOT_AVAILABLE
        return ResponseCode.SUCCESS

    def _reply(self, stored: Stored, code: ResponseCode, remark: str | None = None) -> Answer:
        config = self._settings.now
        header = SendMessageAnswerHeader(
            stored.message_id,
            stored.queue_id,
            stored.queue_offset,
            MSG_REGION=config.region_id,
            TRACE_ON="true" if config.trace_on else "false",
        )
        return Reply(code, header, remark=remark)
