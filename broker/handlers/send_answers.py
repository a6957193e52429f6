"""Answers to stored sends: at once, or when the message is as safe as promised (`broker/durability.py`).

The answers of one turn wait together; a message with WAIT=false does not wait. Codes: 0 stored as safely as promised;
10 the disk did not confirm within `syncFlushTimeout`, but may yet; 11 a SYNC_MASTER has no slave that follows. All of
them carry the same fields. A failed flush is code 1: what the disk refused is never acknowledged, and the broker ends.

Java: broker/processor/SendMessageProcessor.java (handlePutMessageResult)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

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
from rocketlet.remoting.alike_sends import AlikeSends
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, JoinedAnswers, Reply, Request
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader, SendRefusedHeader
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.column_run import AppendedColumns
from rocketlet.store.message import Put

if TYPE_CHECKING:
    from numpy.typing import NDArray


Answers = list[tuple[Request, Answer | JoinedAnswers]]


class Stored(Struct, gc=False, eq=False):
    """A message in the log whose answer is still to come. For a batch: the first one's offsets, the last one's end."""

    request: Request
    log_offset: int
    queue_id: int
    queue_offset: int
    end: int
    ids: str = ""  # of a batch
    recall: str = ""  # of a message with a delivery time


@dataclass(frozen=True, slots=True)
class StoredTogether:
    """Messages in the log, stored together, whose answers are still to come. `request` is the first one's; `frames` are
    their answers where all is well."""

    request: Request
    frames: bytes
    opaques: NDArray[Any]
    queue_ids: NDArray[Any]
    appended: AppendedColumns

    @property
    def end(self) -> int:
        return self.appended.end

    @property
    def count(self) -> int:
        return len(self.opaques)

    def each(self) -> list[Stored]:
        """The messages one by one."""
        log_offsets, sizes = self.appended.log_offsets, self.appended.sizes
        columns = self.opaques, log_offsets, self.queue_ids, self.appended.queue_offsets, log_offsets + sizes
        stored = []
        for opaque, log_offset, queue_id, queue_offset, end in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            request = copy(self.request)
            request.opaque = opaque
            stored.append(Stored(request, log_offset, queue_id, queue_offset, end))
        return stored


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
        self._waiting: list[Stored | StoredTogether] = []
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

    def answer_together(
        self, first: Request, sends: AlikeSends, appended: AppendedColumns, *, wait: bool
    ) -> bytes | Deferred:
        """`answer` of plain sends to a topic that is saved, of which `first` is the first: all frames, or DEFERRED if
        they have to wait."""
        ready = self.terms.now.ready
        assert ready is not None
        frames = ready.frames(first.header_type, sends, appended.log_offsets, appended.queue_offsets)
        if self.terms.now.waits:
            if wait:
                first.body = b""  # a view, which would hold the whole chunk
                self._waiting.append(StoredTogether(first, frames, sends.opaques, sends.queue_ids, appended))
                self.waits += sends.count
                return DEFERRED
            self._durability.want_flush_soon()
        return frames

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
            answers: Answers = [
                (stored.request, JoinedAnswers(stored.frames, stored.count))
                if isinstance(stored, StoredTogether)
                else (stored.request, self._success(stored))
                for stored in waiting
            ]
            connection = waiting[0].request.connection
            if connection.in_flight > 1:  # of a peer with one send in flight nothing more will come
                connection.gather()
            self._durability.call(waiting[-1].end, partial(self._answer_all, waiting, answers))

    def _answer_all(
        self, waiting: list[Stored | StoredTogether], answers: Answers, shortfall: Shortfall | None
    ) -> None:
        """Answer those of one turn, hence of one connection."""
        self._note(waiting)
        if shortfall is not None:
            answers = []
            for stored in chain.from_iterable(
                stored.each() if isinstance(stored, StoredTogether) else [stored] for stored in waiting
            ):
                is_safe = stored.end <= shortfall.holds_to
                answers.append((stored.request, self._success(stored) if is_safe else self._short(stored, shortfall)))
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
            answers: Answers = [(stored.request, self._success(stored))]
            self._durability.call(stored.end, partial(self._answer_all, [stored], answers))
        else:
            self._durability.want_flush_soon()
            self._note([stored])
            stored.request.reply(self._success(stored))

    def _note(self, waited: Sequence[Stored | StoredTogether]) -> None:
        """Record how long this turn's deferred sends took."""
        count = sum(stored.count if isinstance(stored, StoredTogether) else 1 for stored in waited)
        self._times.note(count, (trio.current_time() - waited[0].request.received_at) * 1000)

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
