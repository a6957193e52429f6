"""Answers to stored sends: at once, or when the message is as safe as promised (`broker/durability.py`).

The answers of one turn wait together; a message with WAIT=false does not wait. Codes: 0 stored as safely as promised;
10 the disk did not confirm within `syncFlushTimeout`, but may yet; 11 a SYNC_MASTER has no slave that follows. All of
them carry the same fields. A failed flush is code 1: what the disk refused is never acknowledged, and the broker ends.

Java: broker/processor/SendMessageProcessor.java (handlePutMessageResult)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from msgspec import Struct

from rocketlet.broker.config import Settings
from rocketlet.broker.durability import Durability, Shortfall
from rocketlet.broker.identity import Identity
from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.broker.put_times import PutTimes
from rocketlet.broker.send_terms import CurrentTerms
from rocketlet.broker.topic_table import Topic
from rocketlet.common.message_properties import REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY, decode_bytes
from rocketlet.common.receipt_handle import RecallHandle
from rocketlet.common.topic import RETRY_PREFIX
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader, SendRefusedHeader
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message import Put


class Stored(Struct, gc=False, eq=False):
    """A message in the log whose answer is still to come. For a batch: the first one's offsets, the last one's end."""

    request: Request
    log_offset: int
    queue_id: int
    queue_offset: int
    end: int
    ids: str = ""  # of a batch
    recall: str = ""  # of a message with a delivery time


class SendAnswers:
    """Answers sends; one object for the whole broker."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        terms: CurrentTerms,
        durability: Durability,
        topics_file: JsonFile,
        announced: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
        times: PutTimes,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self.terms = terms
        self._durability = durability
        self._topics_file = topics_file
        self._announced = announced
        self._nursery = nursery
        self._waiting: list[Stored] = []
        self._times = times
        self.waits = 0
        """How many sends were not answered in their turn."""

    def refused_header(self) -> SendRefusedHeader:
        """The header fields of a refusal."""
        return SendRefusedHeader(self._settings.now.region_id, "true" if self._settings.now.trace_on else "false")

    def recall_handle(self, put: Put) -> str:
        """The handle to recall a delayed message."""
        if not self._settings.now.recall_message_enable:
            return ""
        properties = decode_bytes(put.properties)
        topic, message_id = properties[REAL_TOPIC], properties.get(UNIQ_KEY, "")
        if not message_id or topic.startswith(RETRY_PREFIX):
            return ""
        return str(RecallHandle(topic, self._identity.name, int(properties[TIMER_OUT_MS]), message_id))

    def answer(self, stored: Stored, topic: Topic, *, wait: bool) -> Answer | Deferred:
        """The answer, or DEFERRED if it has to wait."""
        if not topic.saved:
            self.waits += 1
            self._nursery.start_soon(self._answer_when_saved, stored, topic, wait)
            return DEFERRED
        if self.terms.now.waits:
            if wait:
                return self.answer_when_safe(stored)
            self._durability.want_flush_soon()
        return self._success(stored)

    def answer_when_safe(self, stored: Stored) -> Deferred:
        """Answer together with the others of this turn."""
        self._waiting.append(stored)
        self.waits += 1
        return DEFERRED

    def after_turn(self) -> None:
        """Have this turn's waiting sends answered together."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            # Made now, while the disk or the replicas are at work: later it would add to the time that they take.
            answers = [(stored.request, self._success(stored)) for stored in waiting]
            self._durability.call(waiting[-1].end, partial(self._answer_all, waiting, answers))

    def _answer_all(
        self, waiting: list[Stored], answers: list[tuple[Request, Answer]], shortfall: Shortfall | None
    ) -> None:
        """Answer those of one turn, hence of one connection."""
        self._note(waiting)
        if shortfall is not None:
            answers = [
                answer if stored.end <= shortfall.holds_to else (stored.request, self._short(stored, shortfall))
                for stored, answer in zip(waiting, answers, strict=True)
            ]
        waiting[0].request.connection.answer_together(answers)

    def _short(self, stored: Stored, shortfall: Shortfall) -> Answer:
        if shortfall.code is ResponseCode.SYSTEM_ERROR:
            return Reply(ResponseCode.SYSTEM_ERROR, self.refused_header(), remark=shortfall.remark)
        return self._reply(stored, shortfall.code, shortfall.remark)

    async def _answer_when_saved(self, stored: Stored, topic: Topic, wait: bool) -> None:
        """The first sends of a topic: not acknowledged before the topic itself is on disk.

        Nor before the name servers have it, if they answer: after sending, a client will want to consume.
        """
        try:
            await self._topics_file.saved()
        except NotSaved as error:
            stored.request.reply(Reply(ResponseCode.SYSTEM_ERROR, self.refused_header(), remark=str(error)))
            return
        await self._announced()
        topic.set_saved(True)
        if wait:
            answers = [(stored.request, self._success(stored))]
            self._durability.call(stored.end, partial(self._answer_all, [stored], answers))
        else:
            self._durability.want_flush_soon()
            self._note([stored])
            stored.request.reply(self._success(stored))

    def _note(self, waited: Sequence[Stored]) -> None:
        """Record how long this turn's deferred sends took."""
        self._times.note(len(waited), (trio.current_time() - waited[0].request.received_at) * 1000)

    def _success(self, stored: Stored) -> Answer:
        request, ready = stored.request, self.terms.now.ready
        if ready is not None and not stored.recall:
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
            recallHandle=stored.recall or None,
        )
        return Reply(code, header, remark=remark)
