"""What a stored send is answered, and when: at once, or when the disk has it.

With SYNC_FLUSH the answers of one turn wait together; a message with WAIT=false does not wait. Codes: 0 stored as
safely as asked; 10 the disk did not confirm within `syncFlushTimeout`, but may yet; 11 a SYNC_MASTER has no slave that
follows. All of them carry the same fields. A flush that failed is code 1: what the disk refused is never acknowledged,
and the broker ends.

Java: broker/processor/SendMessageProcessor.java (handlePutMessageResult), store/CommitLog.java (submitFlushRequest)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.flush_waits import FlushWaits
from rocketlet.broker.identity import Identity
from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.broker.topic_table import Topic
from rocketlet.common.host import V4_SIZE
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader, SendRefusedHeader
from rocketlet.remoting.ready_answers import SendAnswer
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.config import BrokerRole
from rocketlet.store.errors import FlushFailed, FlushTimeout
from rocketlet.store.message_store import MessageStore


@dataclass(slots=True)
class Stored:
    """A message in the log whose answer is still to come. For a batch: the first one's offsets, the last one's end."""

    request: Request
    log_offset: int
    queue_id: int
    queue_offset: int
    end: int
    ids: str = ""  # of a batch


class SendAnswers:
    """Answers sends; one object for the whole broker."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        store: MessageStore,
        topics_file: JsonFile,
        announced: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._store = store
        self._topics_file = topics_file
        self._announced = announced
        self._nursery = nursery
        self._flush_waits = FlushWaits(store, nursery)
        self._waiting: list[Stored] = []
        self.is_sync = False
        """Whether answers wait for the disk."""
        self.ready: SendAnswer | None = None
        """Makes the answer that says nothing but success, where that is what nearly all sends get."""

    def look_again(self) -> None:
        """To be called when settings or the broker's address change."""
        config, store_config, host = self._settings.now, self._store.config, self._identity.store_host
        self.is_sync = store_config.is_sync_flush
        if store_config.broker_role is not BrokerRole.SYNC_MASTER and len(host) == V4_SIZE:
            self.ready = SendAnswer(config.region_id, config.trace_on, host)
        else:
            self.ready = None

    def refused_header(self) -> SendRefusedHeader:
        """What a refusal says all the same."""
        return SendRefusedHeader(self._settings.now.region_id, "true" if self._settings.now.trace_on else "false")

    def answer(self, stored: Stored, topic: Topic, *, wait: bool) -> Answer | Deferred:
        """The answer, or DEFERRED where it has to wait."""
        if not topic.saved:
            self._nursery.start_soon(self._answer_when_saved, stored, topic, wait)
            return DEFERRED
        if self._store.config.is_sync_flush:
            if wait:
                return self.answer_when_flushed(stored)
            self._store.want_flush()
        code = self._confirmed() if wait else ResponseCode.SUCCESS
        return self._success(stored) if code is ResponseCode.SUCCESS else self._reply(stored, code)

    def answer_when_flushed(self, stored: Stored) -> Deferred:
        """Together with the others of this turn."""
        self._waiting.append(stored)
        return DEFERRED

    def after_turn(self) -> None:
        """Have those of this turn that wait for the disk answered together."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._flush_waits.call(waiting[-1].end, partial(self._answer_all, waiting))

    def _answer_all(self, waiting: list[Stored], failure: FlushTimeout | FlushFailed | None) -> None:
        """Those of one turn, so of one connection."""
        success = self._confirmed()
        if failure is None and success is ResponseCode.SUCCESS:
            answers = [(stored.request, self._success(stored)) for stored in waiting]
        else:
            answers = [(stored.request, self._after(stored, failure)) for stored in waiting]
        waiting[0].request.connection.answer_together(answers)

    def _after(self, stored: Stored, failure: FlushTimeout | FlushFailed | None) -> Answer:
        if isinstance(failure, FlushFailed):
            return Reply(ResponseCode.SYSTEM_ERROR, self.refused_header(), remark=str(failure))
        if failure is not None and stored.end > self._store.flushed.value:
            return self._reply(stored, ResponseCode.FLUSH_DISK_TIMEOUT, str(failure))
        return self._reply(stored, self._confirmed())

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
            self._flush_waits.call(stored.end, partial(self._answer_all, [stored]))
        else:
            stored.request.reply(self._reply(stored, self._confirmed() if wait else ResponseCode.SUCCESS))

    def _confirmed(self) -> ResponseCode:
        """A SYNC_MASTER promises a copy at a slave, and there is none."""
        if self._store.config.broker_role is BrokerRole.SYNC_MASTER:
            return ResponseCode.SLAVE_NOT_AVAILABLE
        return ResponseCode.SUCCESS

    def _success(self, stored: Stored) -> Answer:
        request, ready = stored.request, self.ready
        if ready is not None:
            kind, opaque = request.header_type, request.opaque
            if stored.ids:
                frame = ready.frame_of_ids(kind, opaque, stored.ids, stored.queue_id, stored.queue_offset)
            else:
                frame = ready.frame(kind, opaque, stored.log_offset, stored.queue_id, stored.queue_offset)
            if frame is not None:
                return frame
        return self._reply(stored, ResponseCode.SUCCESS)

    def _reply(self, stored: Stored, code: ResponseCode, remark: str | None = None) -> Answer:
        config = self._settings.now
        header = SendMessageAnswerHeader(
            stored.ids or self._identity.message_id(stored.log_offset),
            stored.queue_id,
            stored.queue_offset,
            MSG_REGION=config.region_id,
            TRACE_ON="true" if config.trace_on else "false",
        )
        return Reply(code, header, remark=remark)
