"""11 PULL_MESSAGE, 361 LITE_PULL_MESSAGE (of 5.x, the same): messages of one queue from an offset on.

Refused, in this order: the broker may not be read from (16); no such group (26), or it may not consume (16); no such
topic (17), or it may not be read (16); no such queue (1); then the subscription. It comes with the pull (sysFlag 4; 23
if it does not parse) or from the group's heartbeats: no member or not this topic (24), broadcasting where the group
forbids it (16), older than the pull's version (25: the client's heartbeat has yet to arrive), for SQL92
no filter (27) or an older one (28). SQL92 while `enablePropertyFilter` is off is 1.

| found                                             | code | nextBeginOffset                  |
|---------------------------------------------------|------|----------------------------------|
| messages                                          |  0   | after the last entry examined    |
| only what the filter refuses, or is deleted       | 20   | after the last entry examined    |
| the end of the queue (OFFSET_OVERFLOW_ONE)        | 19   | the same offset                  |
| entries that are gone (OFFSET_FOUND_NULL)         | 19   | the next file of the queue       |
| an offset before the begin, or beyond the end     | 21   | begin, or end                    |
| an empty queue, or none                           | 19 at offset 0, else 21 | 0             |

Each answer has all four offsets, and the status as remark. Instead of 19, a pull that may wait (sysFlag 2) is parked
until its filter matches a new message, at most `suspendTimeoutMillis` (`broker/long_poll.py`). With sysFlag 1 the pull
commits an offset for its group, once, whatever it finds. Records are sent as they are in the log.

The checks are in `pull_checks.py`, the answers in `pull_answers.py`.

Java: broker/processor/PullMessageProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.filter.message_filter import MessageFilter
from rocketlet.broker.handlers.pull_answers import PullAnswers, code_of
from rocketlet.broker.handlers.pull_checks import PullChecks
from rocketlet.broker.identity import Identity
from rocketlet.broker.long_poll import LongPoll
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Handler, HandlerTable, Refused, Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.pulling import COMMIT_OFFSET, SUSPEND, PullMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetResult, GetStatus


class PullMessage:
    """Answers pulls, or parks them."""

    def __init__(
        self,
        identity: Identity,
        checks: PullChecks,
        answers: PullAnswers,
        offsets: ConsumerOffsets,
        store: MessageStore,
        long_poll: LongPoll,
    ) -> None:
        self._identity = identity
        self._checks = checks
        self._answers = answers
        self._offsets = offsets
        self._store = store
        self._long_poll = long_poll

    def table(self) -> HandlerTable:
        access = subscribe(topic="topic", group="consumerGroup")
        return {
            RequestCode.PULL_MESSAGE: Handler(self.handle, PullMessageHeader, "pull", access=access),
            RequestCode.LITE_PULL_MESSAGE: Handler(self.handle, PullMessageHeader, "pull", access=access),
        }

    def handle(self, request: Request) -> Answer | Deferred:
        header: PullMessageHeader = request.header
        group, messages = self._checks.admit(request)
        if header.sysFlag & COMMIT_OFFSET and not self._identity.slave:
            self._commit(header)
        return self._pull(request, group, messages)

    def _pull(self, request: Request, group: SubscriptionGroupConfig, messages: MessageFilter) -> Answer | Deferred:
        header: PullMessageHeader = request.header
        result = self._get(header, header.queueOffset, messages)
        if result.unread:
            return self._once_read(request, result)
        if header.sysFlag & SUSPEND and code_of(result, header) == ResponseCode.PULL_NOT_FOUND:
            return self._park(request, header)
        return self._answers.answer(request, group, result)

    def _once_read(self, request: Request, result: GetResult) -> Deferred:
        return self._answers.once_read(request, result, lambda: self._pull(request, *self._checks.check(request)))

    def _commit(self, header: PullMessageHeader) -> None:
        try:
            self._offsets.commit(header.consumerGroup, header.topic, header.queueId, header.commitOffset)
        except OffsetRefused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None

    def _get(self, header: PullMessageHeader, offset: int, messages: MessageFilter) -> GetResult:
        return self._store.get(
            header.topic,
            header.queueId,
            offset,
            header.maxMsgNums,
            match=messages.by_code,
            match_unit=messages.by_unit,
            match_record=messages.by_record,
            max_bytes=header.maxMsgBytes,
            record_cost=messages.record_cost,
        )

    def _park(self, request: Request, header: PullMessageHeader) -> Deferred:
        end = self._store.watch(header.topic, header.queueId)
        looked_at = header.queueOffset

        def attempt(last: bool) -> Answer | Deferred | int:
            # Repeat all checks: the topic may be deleted, the group disabled, the subscription changed.
            nonlocal looked_at
            group, messages = self._checks.check(request)
            result = self._get(header, looked_at, messages)
            if result.unread:
                return self._once_read(request, result)
            if not last and code_of(result, header) == ResponseCode.PULL_NOT_FOUND:
                return end.value + 1
            if not last and result.status is GetStatus.NO_MATCHED_MESSAGE:
                # Nothing matches the filter: the client would come right back. It keeps waiting, from here.
                looked_at = result.next_offset
                return looked_at + 1
            return self._answers.answer(request, group, result)

        self._long_poll.park(request, end, header.queueOffset + 1, header.suspendTimeoutMillis, attempt)
        return DEFERRED
