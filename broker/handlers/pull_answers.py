"""Answers to pulls: the code and offsets of the result, and the broker to pull from next.

Java: broker/processor/PullMessageProcessor.java (processRequest, its second half)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.identity import Identity
from rocketlet.broker.offset_moved import OffsetMovedEvents
from rocketlet.broker.statistics import Statistics
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.pulling import PullMessageAnswerHeader, PullMessageHeader
from rocketlet.remoting.ready_answers import pull_answer
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetResult, GetStatus

log = logging.getLogger("rocketlet.broker.handlers.pull_answers")

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def code_of(result: GetResult, header: PullMessageHeader) -> ResponseCode:
    """The code of a result; the table is in `pull_message.py`."""
    code = _CODES.get(result.status)
    if code is None:  # an empty or missing queue: an offset other than 0 cannot be right
        return ResponseCode.PULL_OFFSET_MOVED if header.queueOffset != 0 else ResponseCode.PULL_NOT_FOUND
    return code


class PullAnswers:
    """Answers pulls. `recent_bytes`: how far from the end of the log a message still counts as recent."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        store: MessageStore,
        statistics: Statistics,
        recent_bytes: Callable[[], int],
        events: OffsetMovedEvents,
        nursery: trio.Nursery,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._store = store
        self._statistics = statistics
        self._total = statistics.fetched
        self._recent_bytes = recent_bytes
        self._events = events
        self._nursery = nursery

    def answer(self, request: Request, group: SubscriptionGroupConfig, result: GetResult) -> Answer | Deferred:
        """The answer, or DEFERRED to wait for the disk."""
        if result.cold:
            self._nursery.start_soon(self._answer_cold, request, group, result)
            return DEFERRED
        header: PullMessageHeader = request.header
        code = code_of(result, header)
        self._count(request, header, result)
        suggested, following = self._suggest(group, result), result.next_offset
        if code == ResponseCode.PULL_OFFSET_MOVED:
            if self._identity.slave:  # it may not have arrived here yet: the master knows
                code, suggested, following = ResponseCode.PULL_RETRY_IMMEDIATELY, group.brokerId, header.queueOffset
            else:
                self._events.moved(header.consumerGroup, header.topic, header.queueId, header.queueOffset, following)
        numbers = (suggested, following, result.min_offset, result.max_offset)
        remark = result.status.name
        frame = pull_answer(request.header_type, request.opaque, code, remark, numbers, result.slices, result.size)
        if frame is not None:
            return frame
        return Reply(code, PullMessageAnswerHeader(*numbers), result.slices, remark)

    def _count(self, request: Request, header: PullMessageHeader, result: GetResult) -> None:
        statistics = self._statistics
        if not result.count:
            statistics.pulls_missed += 1
            return
        flow = statistics.pull_flows.get((header.consumerGroup, header.topic, header.queueId))
        if flow is None:
            flow = statistics.pull_flow(header.consumerGroup, header.topic, header.queueId)
        for counter in (flow, self._total):
            counter.calls += 1
            counter.extra += result.count - 1
            counter.bytes += result.size
        flow.pulled_to = result.next_offset
        flow.milliseconds += int((trio.current_time() - request.received_at) * 1000)
        statistics.pulls_found += 1

    def once_read(self, request: Request, result: GetResult, retry: Callable[[], Answer | Deferred]) -> Deferred:
        """Repeat the pull once the records that its filter reads are in memory."""
        self._nursery.start_soon(self._read_first, request, result, retry)
        return DEFERRED

    async def _read_first(self, request: Request, result: GetResult, retry: Callable[[], Answer | Deferred]) -> None:
        try:
            await self._store.warm(result)
            answer = retry()
        except OSError as error:
            answer = self._unreadable(request, error)
        except Refused as refused:
            answer = Reply(refused.code, remark=refused.remark)
        if not isinstance(answer, Deferred):
            request.reply(answer)

    async def _answer_cold(self, request: Request, group: SubscriptionGroupConfig, result: GetResult) -> None:
        """Answer with messages that are not in memory."""
        try:
            await self._store.load(result)
        except OSError as error:
            request.reply(self._unreadable(request, error))
            return
        answer = self.answer(request, group, result)
        assert not isinstance(answer, Deferred)
        request.reply(answer)

    def _unreadable(self, request: Request, error: OSError) -> Reply:
        """Deleted meanwhile, or the disk is broken: the client asks again after a second."""
        header: PullMessageHeader = request.header
        log.warning("queue %d of %s cannot be read at %d: %s", header.queueId, header.topic, header.queueOffset, error)
        return Reply(ResponseCode.SYSTEM_ERROR, remark=f"the messages cannot be read: {error.strerror}")

    def _suggest(self, group: SubscriptionGroupConfig, result: GetResult) -> int:
        """The broker id to pull from next: 0 unless slaves may be read from."""
        if not self._settings.now.slave_read_enable:
            return 0
        if result.log_gap > self._recent_bytes():
            return group.whichBrokerWhenConsumeSlowly
        return group.brokerId
