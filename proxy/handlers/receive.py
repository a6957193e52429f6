"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: pops at the brokers.

A receive is a pop from all queues of the broker that the client names. The pop belongs to its own task, not to the
call: if the client has gone meanwhile, popped messages are returned, and others get them at once instead of after their
invisible time.

Java: proxy/grpc/v2/consumer/ReceiveMessageActivity.java, AckMessageActivity.java, ChangeInvisibleDurationActivity.java,
ForwardMessageToDLQActivity.java; proxy/processor/ConsumerProcessor.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from rocketlet.client.errors import ClientError
from rocketlet.common import message_properties as props
from rocketlet.common.clock import WallClock
from rocketlet.common.message_record import Record, RecordError, decode
from rocketlet.common.receipt_handle import InvalidHandle, ReceiptHandle, parse_receipt_handle
from rocketlet.common.subscription import SQL92, TAG, InvalidSubscription, Subscription, parse_expression
from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service.brokers import Brokers, failed, refused
from rocketlet.proxy.service.incoming import incoming
from rocketlet.proxy.service.outgoing import check_group, check_topic
from rocketlet.proxy.service.renewals import Renewals
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code, code_of
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.errors import BodyError, HeaderError, RemotingError
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.popping import (
    ANY_QUEUE,
    FROM_MIN,
    MAX_MESSAGES,
    AckMessageHeader,
    PopMessageAnswerHeader,
    PopMessageHeader,
    parse_info,
)
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import POLLING_FULL, POLLING_TIMEOUT, ResponseCode

_FOUND = int(ResponseCode.SUCCESS)
_EMPTY = frozenset({int(ResponseCode.PULL_NOT_FOUND), POLLING_FULL, POLLING_TIMEOUT})
_MARGIN_MS = 200  # between our empty answer and the client's deadline
_ANSWER_SECONDS = 3.0  # allowed to a broker beyond the polling time
_MAX_ENTRIES = 1024  # of one acknowledgement
_TO_DEAD_LETTERS = -1  # as a delay level
_LONGEST_ATTEMPT = 128
_LONGEST_EXPRESSION = 16 << 10
MAX_POPS = 20_000
"""Pops that wait at brokers; one goes on for a while after its client has reset the call."""


@dataclass(slots=True)
class Popped:
    """One message of a pop."""

    record: Record
    properties: dict[str, str]
    handle: ReceiptHandle


class _Poll:
    """A receive that waits for its pop. `is_over`: the client no longer waits."""

    __slots__ = ("done", "error", "is_over", "messages")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.is_over = False
        self.messages: list[Popped] = []
        self.error: Refusal | None = None


class Receives:
    """See the module."""

    def __init__(self, config: ProxyConfig, brokers: Brokers, renewals: Renewals, clock: WallClock) -> None:
        self._config = config
        self._brokers = brokers
        self._renewals = renewals
        self._clock = clock
        self._nursery: trio.Nursery | None = None
        self._polls: dict[str, set[_Poll]] = {}  # by client
        self._pops = 0

    async def run(self) -> None:
        """Run the background work, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._renewals.run)
            await trio.sleep_forever()

    # ---- receive

    async def receive(self, call: Call, request: m.ReceiveMessageRequest) -> None:
        """Answer with messages as soon as there are some, or with none at the end of the poll."""
        topic, group = request.message_queue.topic.name, request.group.name
        check_topic(topic)
        check_group(group)
        client_id = call.client_id
        if self._pops >= MAX_POPS:
            raise Refusal(Code.TOO_MANY_REQUESTS, f"{MAX_POPS} receives wait already")
        invisible = self._invisible(request)
        subscription = _subscription(topic, request.filter_expression)
        topic_info = await self._brokers.topic(topic)
        broker = request.message_queue.broker.name
        address = topic_info.masters.get(broker) or self._brokers.master(broker)
        header = PopMessageHeader(
            consumerGroup=group,
            topic=topic,
            queueId=ANY_QUEUE,
            maxMsgNums=min(max(request.batch_size, 1), MAX_MESSAGES),
            invisibleTime=invisible,
            pollTime=self._poll_ms(call, request),
            bornTime=self._clock(),
            initMode=FROM_MIN,
            expType=subscription.expression_type,
            exp=subscription.expression,
            order=(await self._brokers.group(group)).is_orderly,
            attemptId=request.attempt_id[:_LONGEST_ATTEMPT] or None,
            bname=broker,
        )
        poll = _Poll()
        polls = self._polls.setdefault(client_id, set())
        polls.add(poll)
        assert self._nursery is not None
        self._nursery.start_soon(self._pop, address, header, subscription, poll)
        try:
            await poll.done.wait()
        except trio.Cancelled:
            for popped in poll.messages:  # they arrived between the cancellation and this line
                self._renewals.give_back(group, topic, popped.handle)
            raise
        finally:
            poll.is_over = True
            polls.discard(poll)
            if not polls:
                self._polls.pop(client_id, None)
        if poll.error is not None:
            raise poll.error
        self._answer(call, request, topic, group, poll.messages)

    def end_polls(self, client_id: str) -> None:
        """The client terminates: its receives are answered now, without messages."""
        for poll in self._polls.get(client_id, ()):
            poll.is_over = True
            poll.done.set()

    def end_all_polls(self) -> None:
        """This endpoint stops: all receives are answered now, without messages."""
        for client_id in list(self._polls):
            self.end_polls(client_id)

    def _answer(
        self, call: Call, request: m.ReceiveMessageRequest, topic: str, group: str, messages: Sequence[Popped]
    ) -> None:
        if call.is_over:
            for popped in messages:
                self._renewals.give_back(group, topic, popped.handle)
            return
        if not messages:
            call.code = Code.MESSAGE_NOT_FOUND
            call.send(m.ReceiveMessageResponse(status=m.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")))
        else:
            call.send(m.ReceiveMessageResponse(status=m.Status(code=Code.OK, message="OK")))
            for popped in messages:
                message = incoming(popped.record, popped.properties, topic, str(popped.handle))
                message.system_properties.invisible_duration.seconds = popped.handle.invisible_time // 1000
                call.send(m.ReceiveMessageResponse(message=message))
                if request.auto_renew:
                    self._renewals.hold(call.owner, group, topic, popped.handle)
        now = self._clock()
        call.send(
            m.ReceiveMessageResponse(delivery_timestamp=m.Timestamp(seconds=now // 1000, nanos=now % 1000 * 1_000_000))
        )
        call.end()

    def _invisible(self, request: m.ReceiveMessageRequest) -> int:
        config = self._config
        if request.auto_renew:
            return config.default_invisible_time_mills
        ms = _ms(request.invisible_duration)
        if not config.min_invisible_time_mills_for_recv <= ms <= config.max_invisible_time_mills:
            raise Refusal(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"an invisible time of {ms} ms; it may be {config.min_invisible_time_mills_for_recv} to"
                f" {config.max_invisible_time_mills}",
            )
        return ms

    def _poll_ms(self, call: Call, request: m.ReceiveMessageRequest) -> int:
        """How long to wait for messages: as requested, within our limits, and early enough to answer in time."""
        config = self._config
        least = config.grpc_client_consumer_min_long_polling_timeout_millis
        longest = config.grpc_client_consumer_max_long_polling_timeout_millis
        remaining = longest + 3000 if call.deadline is None else round((call.deadline - trio.current_time()) * 1000)
        requested = _ms(request.long_polling_timeout) if request.HasField("long_polling_timeout") else remaining - 1500
        poll = min(max(requested, least), longest)
        if remaining < least:
            raise Refusal(
                Code.ILLEGAL_POLLING_TIME, f"the deadline leaves {remaining} ms for a poll, and the shortest is {least}"
            )
        return max(min(poll, remaining - _MARGIN_MS), 0)

    async def _pop(self, address: str, header: PopMessageHeader, subscription: Subscription, poll: _Poll) -> None:
        self._pops += 1
        try:
            answer = await self._brokers.ask(
                address,
                RequestCode.POP_MESSAGE,
                header,
                timeout=header.pollTime / 1000 + _ANSWER_SECONDS,
                good=_EMPTY | {_FOUND},
            )
            messages = _messages(answer, header.bname or "") if answer.code == _FOUND else []
        except ClientError as error:
            poll.error = refused(error)
        except (BodyError, HeaderError, RecordError) as error:
            poll.error = Refusal(Code.INTERNAL_SERVER_ERROR, f"{header.bname} answered what cannot be read: {error}")
        else:
            for popped in messages:
                if poll.is_over:
                    self._renewals.give_back(header.consumerGroup, header.topic, popped.handle)
                elif subscription.tags and popped.properties.get(props.TAGS) not in subscription.tags:
                    self._ack_soon(address, header.consumerGroup, header.topic, popped.handle)  # equal hashes
                else:
                    poll.messages.append(popped)
        finally:
            self._pops -= 1
        poll.done.set()

    # ---- acknowledging

    def ack(self, call: Call, request: m.AckMessageRequest) -> Awaitable[m.AckMessageResponse] | None:
        """Messages are acknowledged. Each entry is answered separately."""
        check_topic(request.topic.name)
        check_group(request.group.name)
        if not request.entries or len(request.entries) > _MAX_ENTRIES:
            raise Refusal(Code.BAD_REQUEST, f"{len(request.entries)} entries; 1 to {_MAX_ENTRIES} can be acknowledged")
        if len(request.entries) > 1:
            return self._ack_all(request)
        entry = request.entries[0]
        handle = _handle(entry.receipt_handle)
        connection = self._brokers.connection(self._brokers.master(handle.broker_name))
        if connection is None:
            return self._ack_all(request)
        current = self._renewals.release(request.group.name, entry.receipt_handle) or handle
        command = _ack_command(request.group.name, request.topic.name, current)
        self._brokers.ask_soon(connection, command, partial(_acked, call, entry))
        return None

    async def _ack_all(self, request: m.AckMessageRequest) -> m.AckMessageResponse:
        results = []
        for entry in request.entries:
            try:
                handle = _handle(entry.receipt_handle)
                current = self._renewals.release(request.group.name, entry.receipt_handle) or handle
                await self._ack_one(request.group.name, request.topic.name, current)
                status = m.Status(code=Code.OK, message="OK")
            except Refusal as refusal:
                status = m.Status(code=refusal.code, message=str(refusal))
            results.append(
                m.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            )
        codes = {result.status.code for result in results}
        status = results[0].status if len(codes) == 1 else m.Status(code=Code.MULTIPLE_RESULTS)
        return m.AckMessageResponse(status=status, entries=results)

    async def _ack_one(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Raises Refusal."""
        command = _ack_command(group, topic, handle)
        try:
            answer = await self._brokers.pool.call(self._brokers.master(handle.broker_name), command, _ANSWER_SECONDS)
        except RemotingError as error:
            raise failed(error) from error
        if answer.code != _FOUND:
            raise _refused_ack(answer)

    def _ack_soon(self, address: str, group: str, topic: str, handle: ReceiptHandle) -> None:
        connection = self._brokers.connection(address)
        if connection is not None:
            self._brokers.ask_soon(connection, _ack_command(group, topic, handle), lambda answer: None)

    async def change(self, call: Call, request: m.ChangeInvisibleDurationRequest) -> m.ChangeInvisibleDurationResponse:
        """A message is redelivered after this time, counted from now."""
        group, topic = request.group.name, request.topic.name
        check_topic(topic)
        check_group(group)
        invisible = _ms(request.invisible_duration)
        if not 0 <= invisible <= self._config.max_invisible_time_mills:
            raise Refusal(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"an invisible time of {invisible} ms, maxInvisibleTimeMills={self._config.max_invisible_time_mills}",
            )
        handle = _handle(request.receipt_handle)
        current = self._renewals.release(group, request.receipt_handle) or handle
        try:
            changed = await self._renewals.change(group, topic, current, invisible)
        except ClientError as error:
            raise refused(error) from error
        return m.ChangeInvisibleDurationResponse(
            status=m.Status(code=Code.OK, message="OK"), receipt_handle=str(changed)
        )

    async def forward(
        self, call: Call, request: m.ForwardMessageToDeadLetterQueueRequest
    ) -> m.ForwardMessageToDeadLetterQueueResponse:
        """The consumer gives up a message: it becomes a dead letter of its group and is acknowledged."""
        group, topic = request.group.name, request.topic.name
        check_topic(topic)
        check_group(group)
        handle = _handle(request.receipt_handle)
        current = self._renewals.release(group, request.receipt_handle) or handle
        if handle.log_offset is None:
            raise Refusal(Code.INVALID_RECEIPT_HANDLE, "the handle does not say where the message is")
        header = ConsumerSendMsgBackHeader(
            offset=handle.log_offset,
            group=group,
            delayLevel=_TO_DEAD_LETTERS,
            originMsgId=request.message_id,
            originTopic=topic,
            maxReconsumeTimes=0,
            bname=handle.broker_name,
        )
        address = self._brokers.master(handle.broker_name)
        await self._brokers.demand(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._ack_one(group, topic, current)
        return m.ForwardMessageToDeadLetterQueueResponse(status=m.Status(code=Code.OK, message="OK"))


def _subscription(topic: str, expression: m.FilterExpression) -> Subscription:
    kind = SQL92 if expression.type == m.SQL else TAG
    if len(expression.expression) > _LONGEST_EXPRESSION:
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, f"a filter of more than {_LONGEST_EXPRESSION} characters")
    try:
        return parse_expression(topic, expression.expression, kind, 0)
    except InvalidSubscription as error:
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def _messages(answer: Command, broker: str) -> list[Popped]:
    """The messages of a pop, each with its handle. Raises BodyError, HeaderError, RecordError."""
    header = from_ext(PopMessageAnswerHeader, answer.ext)
    starts = {queue: int(start) for queue, start in parse_info(header.startOffsetInfo).items()}
    offsets = {queue: text.split(",") for queue, text in parse_info(header.msgOffsetInfo).items()}
    retry_of = {
        (queue_id, offset): retry for (retry, queue_id), offset_list in offsets.items() for offset in offset_list
    }
    body = bytes(answer.body)
    messages = []
    at = 0
    while at < len(body):
        record = decode(body, at)
        at += record.size
        retry = retry_of.get((record.queue_id, str(record.queue_offset)), 0)
        handle = ReceiptHandle(
            start_offset=starts.get((retry, record.queue_id), record.queue_offset),
            pop_time=header.popTime,
            invisible_time=header.invisibleTime,
            revive_queue=header.reviveQid,
            retry=retry,
            broker_name=broker,
            queue_id=record.queue_id,
            offset=record.queue_offset,
            log_offset=record.log_offset,
        )
        messages.append(Popped(record, props.decode_bytes(record.properties), handle))
    return messages


def _handle(text: str) -> ReceiptHandle:
    try:
        return parse_receipt_handle(text)
    except InvalidHandle as error:
        raise Refusal(Code.INVALID_RECEIPT_HANDLE, str(error)) from None


def _ack_command(group: str, topic: str, handle: ReceiptHandle) -> Command:
    header = AckMessageHeader(
        queueId=handle.queue_id,
        offset=handle.offset,
        consumerGroup=group,
        topic=topic,
        extraInfo=str(handle),
        bname=handle.broker_name,
    )
    return request(RequestCode.ACK_MESSAGE, header)


def _acked(call: Call, entry: m.AckMessageEntry, answer: Command | RemotingError) -> None:
    if call.is_over:
        return
    if isinstance(answer, RemotingError):
        refusal = failed(answer)
    elif answer.code != _FOUND:
        refusal = _refused_ack(answer)
    else:
        refusal = None
    if refusal is None:
        status = m.Status(code=Code.OK, message="OK")
    else:
        call.code = refusal.code
        status = m.Status(code=refusal.code, message=str(refusal))
    result = m.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
    call.reply(m.AckMessageResponse(status=status, entries=(result,)))


def _refused_ack(answer: Command) -> Refusal:
    code = Code.INVALID_RECEIPT_HANDLE if answer.code == ResponseCode.NO_MESSAGE else code_of(answer.code)
    return Refusal(code, answer.remark or f"the broker answered {answer.code}")


def _ms(duration: m.Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000
