"""200050 POP_MESSAGE, 200054 NOTIFICATION, 200052 PEEK_MESSAGE, 200055 POLLING_INFO, of 5.x: messages for a while.

Refused, in this order: the broker may not be read from (16), or is a slave (14); more than 32 messages (1); no such
group (26), or it may not consume (16); no such topic (17), or it may not be read (16); no such queue (1); a filter that
does not parse (23). The filter comes with the request; without one everything matches.

A pop finds messages (0), or waits for at most `pollTime` (210). With 1,024 waiting for the same group and topic it is
209; without `pollTime`, or after `bornTime` + `pollTime`, 210 at once. A redelivered message's `reconsumeTimes` is the
number of earlier deliveries. It is read from its place in the log, so its topic is its own, never a retry topic.

Java: broker/processor/PopMessageProcessor.java, NotificationProcessor.java, PeekMessageProcessor.java,
PollingInfoProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from rocketlet.broker.filter.message_filter import EVERYTHING, MessageFilter
from rocketlet.broker.handlers.pop_answers import PopAnswers
from rocketlet.broker.handlers.pull_checks import PullChecks
from rocketlet.broker.popping.picking import FILTER_BUDGET
from rocketlet.broker.popping.pops import PopResult, Pops
from rocketlet.broker.popping.sharing import Delivery, PopRequest
from rocketlet.broker.popping.waiting import Outcome, Waiting
from rocketlet.broker.statistics import Statistics
from rocketlet.common.clock import WallClock
from rocketlet.common.message_record import Buffer, with_reconsume_times
from rocketlet.common.receipt_handle import ORDERLY_REVIVE_QUEUE
from rocketlet.common.subscription import TAG
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.popping import (
    ANY_QUEUE,
    FROM_MAX,
    MAX_MESSAGES,
    NotificationAnswerHeader,
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoAnswerHeader,
    PollingInfoHeader,
    PopMessageAnswerHeader,
    PopMessageHeader,
    info_text,
)
from rocketlet.remoting.ready_answers import pop_answer
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import POLLING_FULL, POLLING_TIMEOUT, ResponseCode
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetResult, Span

log = logging.getLogger("rocketlet.broker.handlers.pop_message")

# How late a request may be before its client has given up, as in RocketMQ.
LATE_MS = 500
# Attempts at a queue that find only rejected or dead messages, before other tasks run.
LOOKS = 4
MAX_QUEUES = 1_024
"""That a pop from any queue looks into, at 8 µs each where the group pops from it for the first time."""


class PopMessage:
    """Answers pops, or parks them."""

    def __init__(
        self,
        checks: PullChecks,
        pops: Pops,
        waiting: Waiting,
        store: MessageStore,
        statistics: Statistics,
        clock: WallClock,
        nursery: trio.Nursery,
        answers: PopAnswers,
    ) -> None:
        self._checks = checks
        self._pops = pops
        self._waiting = waiting
        self._store = store
        self._statistics = statistics
        self._clock = clock
        self._nursery = nursery
        self._answers = answers
        self._turn = 0

    def table(self) -> HandlerTable:
        consume = subscribe(topic="topic", group="consumerGroup")
        return {
            RequestCode.POP_MESSAGE: Handler(self.pop, PopMessageHeader, "pull", parks=True, access=consume),
            RequestCode.NOTIFICATION: Handler(self.notify, NotificationHeader, "pull", parks=True, access=consume),
            RequestCode.PEEK_MESSAGE: Handler(self.peek, PeekMessageHeader, "pull", access=consume),
            RequestCode.POLLING_INFO: Handler(self.polling_info, PollingInfoHeader, "pull", access=consume),
        }

    # ---- 200050

    def pop(self, request: Request) -> Answer | Deferred:
        header: PopMessageHeader = request.header
        self._check_times(header.bornTime, header.pollTime, header)
        ask = self._ask(header)
        outcome = self._attempt(request, ask, self._answers.of_this_turn, last=header.pollTime <= 0)
        if not isinstance(outcome, Outcome):
            return outcome
        if self._waiting.is_full(header.consumerGroup, header.topic):
            return Reply(POLLING_FULL, self._empty_header(header), remark="too many pops wait, here or for this group")

        def attempt(last: bool) -> Answer | Deferred | Outcome:
            return self._attempt(request, ask, self._answers.when_written, last)

        kind = (header.queueId, header.expType, header.exp, header.order)
        self._park(request, header, kind, attempt, outcome)
        return DEFERRED

    def _attempt(
        self, request: Request, ask: PopRequest, answer: Callable[[Request, Answer], Deferred | None], last: bool
    ) -> Answer | Deferred | Outcome:
        header: PopMessageHeader = request.header
        spent = 0
        for _ in range(LOOKS):
            popped = self._pops.take(self._turned(ask))
            if popped.deliveries:
                return self._answer(request, popped, answer)
            spent += FILTER_BUDGET - ask.budget
            if not popped.progress or spent >= FILTER_BUDGET:
                break
        if last:
            return Reply(POLLING_TIMEOUT, self._empty_header(header))
        return Outcome.MORE if popped.progress else Outcome.NOTHING

    def _answer(
        self, request: Request, popped: PopResult, answer: Callable[[Request, Answer], Deferred | None]
    ) -> Deferred | None:
        header: PopMessageHeader = request.header
        result = self._store.at(*_spans(popped.deliveries))
        self._count(header, popped, result, request.received_at)
        if result.cold:
            self._nursery.start_soon(self._answer_cold, request, popped, result)
            return DEFERRED
        return answer(request, self._reply(request, popped, result))

    async def _answer_cold(self, request: Request, popped: PopResult, result: GetResult) -> None:
        try:
            await self._store.load(result)
        except OSError as error:
            # They are redelivered when their invisible time ends.
            log.warning("messages of %s cannot be read: %s", request.header.topic, error)
            request.reply(
                Reply(ResponseCode.SYSTEM_ERROR, remark=f"the messages cannot be read: {error.strerror or error}")
            )
            return
        request.reply(self._reply(request, popped, result))

    def _reply(self, request: Request, popped: PopResult, result: GetResult) -> Answer:
        header: PopMessageHeader = request.header
        bodies = _bodies(popped.deliveries, result.slices)
        if not header.order and len(popped.deliveries) == 1:
            delivery = popped.deliveries[0]
            numbers = (popped.pop_time, header.invisibleTime, 0, popped.rest)
            frame = pop_answer(
                request.header_type,
                request.opaque,
                numbers,
                delivery.queue_id,
                delivery.offsets,
                bodies,
                delivery.bytes,
            )
            if frame is not None:
                return frame
        starts, offsets, tries = {}, {}, []
        for delivery in popped.deliveries:
            place = (0, delivery.queue_id)
            starts[place] = delivery.offsets[0]
            offsets[place] = ",".join(map(str, delivery.offsets))
            if header.order:
                pairs = zip(delivery.offsets, delivery.times, strict=True)
                tries += [(0, f"qo{delivery.queue_id}%{offset}", times) for offset, times in pairs]
                tries.append((0, str(delivery.queue_id), delivery.times[0]))
        answer = PopMessageAnswerHeader(
            popped.pop_time,
            header.invisibleTime,
            ORDERLY_REVIVE_QUEUE if header.order else 0,
            popped.rest,
            info_text(starts),
            info_text(offsets),
            ";".join(f"{retry} {name} {times}" for retry, name, times in tries) if tries else None,
        )
        return Reply(ResponseCode.SUCCESS, answer, bodies, "FOUND")

    def _empty_header(self, header: PopMessageHeader) -> PopMessageAnswerHeader:
        revive = ORDERLY_REVIVE_QUEUE if header.order else 0
        return PopMessageAnswerHeader(self._clock(), header.invisibleTime, revive, 0)

    def _count(self, header: PopMessageHeader, popped: PopResult, result: GetResult, received_at: float) -> None:
        statistics = self._statistics
        for delivery in popped.deliveries:
            key = (header.consumerGroup, header.topic, delivery.queue_id)
            flow = statistics.pull_flows.get(key) or statistics.pull_flow(*key)
            for counter in (flow, statistics.fetched):
                counter.calls += 1
                counter.extra += len(delivery.offsets) - 1
                counter.bytes += delivery.bytes
            flow.pulled_to = max(flow.pulled_to, delivery.offsets[-1] + 1)
            flow.milliseconds += int((trio.current_time() - received_at) * 1000)
        statistics.pulls_found += 1

    # ---- 200054

    def notify(self, request: Request) -> Answer | Deferred:
        header: NotificationHeader = request.header
        self._check_times(header.bornTime, header.pollTime, None)
        ask = self._ask(header)

        def attempt(last: bool) -> Answer | Deferred | Outcome:
            shares = self._pops.plan(self._turned(ask))
            if any(shares) or last:
                return Reply(header=NotificationAnswerHeader(hasMsg=any(shares)))
            return Outcome.NOTHING

        outcome = attempt(header.pollTime <= 0)
        if not isinstance(outcome, Outcome):
            return outcome
        if self._waiting.is_full(header.consumerGroup, header.topic):
            return Reply(header=NotificationAnswerHeader(pollingFull=True))
        kind = ("notification", header.queueId, header.expType, header.exp, header.order)
        self._park(request, header, kind, attempt, outcome)
        return DEFERRED

    # ---- 200052, 200055

    async def peek(self, request: Request) -> Reply:
        header: PeekMessageHeader = request.header
        ask = self._ask(header)
        shares = [share for share in self._pops.plan(ask) if share]
        deliveries = [share.delivery() for share in shares]
        if not deliveries:
            return Reply(ResponseCode.PULL_NOT_FOUND, PopMessageAnswerHeader(self._clock(), 0, 0, 0))
        result = await self._store.load(self._store.at(*_spans(deliveries)))
        starts = {(0, delivery.queue_id): delivery.offsets[0] for delivery in deliveries}
        answer = PopMessageAnswerHeader(self._clock(), 0, 0, 0, info_text(starts))
        return Reply(ResponseCode.SUCCESS, answer, _bodies(deliveries, result.slices), "FOUND")

    def polling_info(self, request: Request) -> Reply:
        header: PollingInfoHeader = request.header
        return Reply(header=PollingInfoAnswerHeader(self._waiting.waiting(header.consumerGroup, header.topic)))

    # ---- shared parts

    def _check_times(self, born: int, poll: int, header: PopMessageHeader | None) -> None:
        if born > 0 and poll > 0 and born + poll + LATE_MS < self._clock():
            raise Refused(
                POLLING_TIMEOUT,
                "the request is older than its waiting time; look at the clocks of client and broker",
                self._empty_header(header) if header is not None else NotificationAnswerHeader(),
            )

    def _ask(self, header: PopMessageHeader | NotificationHeader | PeekMessageHeader) -> PopRequest:
        limit = 1 if isinstance(header, NotificationHeader) else header.maxMsgNums
        if not 1 <= limit <= MAX_MESSAGES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"maxMsgNums is {limit}; it is 1 to {MAX_MESSAGES}")
        _, topic = self._checks.group_and_topic(header.consumerGroup, header.topic)
        if not ANY_QUEUE <= header.queueId < topic.read:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read}]",
            )
        if header.queueId == ANY_QUEUE and topic.read > MAX_QUEUES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic.name} has {topic.read} queues, and a pop looks into {MAX_QUEUES} at most: name a queue,"
                " or give the topic fewer",
            )
        queues: Sequence[int] = range(topic.read) if header.queueId == ANY_QUEUE else (header.queueId,)
        if isinstance(header, PeekMessageHeader):
            return PopRequest(header.consumerGroup, header.topic, queues, limit, 0)
        message_filter: MessageFilter = EVERYTHING
        if header.exp:
            self._checks.prepare(header.topic, header.exp, header.expType or TAG)
            message_filter = self._checks.filter_of(header.topic, header.exp, header.expType or TAG)
        ask = PopRequest(
            header.consumerGroup,
            header.topic,
            queues,
            limit,
            0,
            message_filter,
            header.order,
            (header.attemptId or "")[:128],
        )
        if isinstance(header, NotificationHeader):
            return ask
        if header.invisibleTime < 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"invisibleTime is {header.invisibleTime} ms; it is 0 or more")
        ask.invisible_ms, ask.from_max = header.invisibleTime, header.initMode == FROM_MAX
        return ask

    def _turned(self, ask: PopRequest) -> PopRequest:
        """Rotate the first queue, or the last ones would be neglected by many consumers."""
        count = len(ask.queue_ids)
        if count <= 1:
            return ask
        self._turn += 1
        start = self._turn % count
        ask.queue_ids = [*ask.queue_ids[start:], *ask.queue_ids[:start]]
        return ask

    def _park(
        self,
        request: Request,
        header: PopMessageHeader | NotificationHeader,
        kind: tuple[object, ...],
        attempt: Callable[[bool], Answer | Deferred | Outcome],
        outcome: Outcome,
    ) -> None:
        def checked(last: bool) -> Answer | Deferred | Outcome:
            # Check again: the topic may be deleted, the group disabled.
            self._checks.group_and_topic(header.consumerGroup, header.topic)
            return attempt(last)

        self._waiting.park(request, header.consumerGroup, header.topic, kind, header.pollTime, checked)
        if outcome is Outcome.MORE:
            self._waiting.ring(header.consumerGroup, header.topic)


def _spans(deliveries: Sequence[Delivery]) -> tuple[list[Span], int]:
    if len(deliveries) == 1:
        return deliveries[0].spans, deliveries[0].bytes
    return [span for delivery in deliveries for span in delivery.spans], sum(
        [delivery.bytes for delivery in deliveries]
    )


def _bodies(deliveries: Sequence[Delivery], slices: Sequence[Buffer]) -> Sequence[Buffer]:
    """The records in order; redelivered ones carry their number of deliveries."""
    if all(delivery.before is None for delivery in deliveries):
        return slices
    all_times = [times for delivery in deliveries for times in (delivery.before or [0] * len(delivery.spans))]
    return [
        with_reconsume_times(record, times) if times else record
        for record, times in zip(slices, all_times, strict=True)
    ]
