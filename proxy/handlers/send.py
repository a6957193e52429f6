"""SendMessage, and RecallMessage of undelivered messages.

The usual send, one message to a known topic over an open connection, needs no task: its frame is written to the
broker's connection within the turn that read the request, and the broker's answer is converted as soon as it is read. A
task per send would cost as much as all the rest.

Java: proxy/grpc/v2/producer/SendMessageActivity.java, RecallMessageActivity.java,
proxy/processor/ProducerProcessor.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from rocketlet.common.clock import WallClock
from rocketlet.common.message import MessageQueue
from rocketlet.common.receipt_handle import InvalidHandle, RecallHandle, parse_recall_handle
from rocketlet.common.topic_attributes import TRANSACTION
from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service.brokers import Brokers, Topic, failed
from rocketlet.proxy.service.outgoing import Outgoing, check_topic, check_type, choose_queue, outgoing
from rocketlet.proxy.service.transactions import Transactions
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code, code_of
from rocketlet.remoting.command import Command
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import HeaderError, RemotingError
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.popping import RecallMessageAnswerHeader, RecallMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode, response_name

# With these a message is stored, though less safely than the broker's settings require.
_STORED = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.FLUSH_DISK_TIMEOUT),
        int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
        int(ResponseCode.SLAVE_NOT_AVAILABLE),
    }
)
Settle = Callable[[m.SendResultEntry], None]


class Sends:
    """See the module."""

    def __init__(
        self,
        config: ProxyConfig,
        brokers: Brokers,
        transactions: Transactions,
        clock: WallClock,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._transactions = transactions
        self._clock = clock

    def send(self, call: Call, request: m.SendMessageRequest) -> Awaitable[m.SendMessageResponse | None] | None:
        """Each message is stored or refused separately; the answer says which."""
        messages = request.messages
        if not messages:
            raise Refusal(Code.BAD_REQUEST, "no message to send")
        name = messages[0].topic.name
        if len(messages) == 1:
            topic = self._brokers.known_topic(name)
            if topic is not None:
                message = self._checked(call, messages[0], topic)
                queue, address = self._place(topic, message)
                connection = self._brokers.connection(address)
                if connection is not None:
                    self._hand_over(call, topic, queue, message, connection, partial(_answer, call))
                    return None
        return self._send_all(call, request)

    async def _send_all(self, call: Call, request: m.SendMessageRequest) -> None:
        name = request.messages[0].topic.name
        if any(message.topic.name != name for message in request.messages):
            raise Refusal(Code.MESSAGE_CORRUPTED, "the messages of one request have several topics")
        check_topic(name)
        topic = await self._brokers.topic(name)
        checked = [self._checked(call, message, topic) for message in request.messages]
        places = [self._place(topic, message) for message in checked]
        entries: list[m.SendResultEntry | None] = [None] * len(checked)
        all_done = trio.Event()

        def settle(index: int, entry: m.SendResultEntry) -> None:
            entries[index] = entry
            if None not in entries:
                all_done.set()

        for index, (message, (queue, address)) in enumerate(zip(checked, places, strict=True)):
            try:
                connection = await self._brokers.pool.connection(address)
            except RemotingError as error:
                raise Refusal(Code.INTERNAL_SERVER_ERROR, str(error)) from error
            self._hand_over(call, topic, queue, message, connection, partial(settle, index))
        await all_done.wait()
        _answer_all(call, [entry for entry in entries if entry is not None])

    def _checked(self, call: Call, message: m.Message, topic: Topic) -> Outgoing:
        checked = outgoing(message, self._config, call.owner.peer, self._clock())
        if self._config.enable_topic_message_type_check:
            check_type(topic.type, checked.type)
        return checked

    def _place(self, topic: Topic, message: Outgoing) -> tuple[MessageQueue, str]:
        queues = topic.route.writable
        if not queues:
            raise Refusal(Code.FORBIDDEN, f"topic {topic.name} has no queue that may be written")
        queue = choose_queue(queues, message.message_group, topic.route.next_turn())
        return queue, topic.masters[queue.broker_name]

    def _hand_over(
        self,
        call: Call,
        topic: Topic,
        queue: MessageQueue,
        message: Outgoing,
        connection: Connection,
        settle: Settle,
    ) -> None:
        parts = queue.queue_id, message.sys_flag, message.born_timestamp, 0, message.properties, message.body, False

        def answered(answer: Command | RemotingError) -> None:
            settle(self._entry(topic, queue, message, answer))

        if self._brokers.takes_frames(connection):
            opaque = connection.take_opaque()
            self._brokers.frame_soon(connection, opaque, topic.template.frame(opaque, parts), answered)
        else:
            self._brokers.ask_soon(connection, topic.template.command(connection.header_type, parts), answered)

    def _entry(
        self, topic: Topic, queue: MessageQueue, message: Outgoing, answer: Command | RemotingError
    ) -> m.SendResultEntry:
        if isinstance(answer, RemotingError):
            refusal = failed(answer)
            return _refused(refusal.code, str(refusal))
        if answer.code not in _STORED:
            remark = f": {answer.remark}" if answer.remark else ""
            return _refused(code_of(answer.code), f"{response_name(answer.code)}{remark}")
        try:
            header = from_ext(SendMessageAnswerHeader, answer.ext)
        except HeaderError as error:
            return _refused(Code.INTERNAL_SERVER_ERROR, f"{queue.broker_name} answered what cannot be read: {error}")
        code = code_of(answer.code)
        entry = m.SendResultEntry(
            status=m.Status(code=code, message="OK" if code is Code.OK else response_name(answer.code)),
            message_id=message.message_id,
            offset=header.queueOffset,
        )
        if message.type == TRANSACTION:
            entry.transaction_id = self._transactions.begun(topic.name, queue.broker_name, message.message_id, header)
        if message.deliver_ms:
            entry.recall_handle = header.recallHandle or str(
                RecallHandle(topic.name, queue.broker_name, message.deliver_ms, message.message_id)
            )
        return entry

    # ---- recall

    async def recall(self, call: Call, request: m.RecallMessageRequest) -> m.RecallMessageResponse:
        """Recall a delayed message."""
        name = request.topic.name
        check_topic(name)
        try:
            handle = parse_recall_handle(request.recall_handle)
        except InvalidHandle as error:
            raise Refusal(Code.INTERNAL_SERVER_ERROR, str(error)) from None
        if handle.topic != name:
            raise Refusal(Code.INTERNAL_SERVER_ERROR, f"the handle is of another topic, {handle.topic}")
        topic = await self._brokers.topic(name)
        address = topic.masters.get(handle.broker_name) or self._brokers.master(handle.broker_name)
        header = RecallMessageHeader(
            producerGroup=name, topic=name, recallHandle=request.recall_handle, bname=handle.broker_name
        )
        answer = await self._brokers.demand(address, RequestCode.RECALL_MESSAGE, header)
        try:
            message_id = from_ext(RecallMessageAnswerHeader, answer.ext).msgId
        except HeaderError as error:
            raise Refusal(Code.INTERNAL_SERVER_ERROR, str(error)) from None
        return m.RecallMessageResponse(status=m.Status(code=Code.OK, message="OK"), message_id=message_id)


def _refused(code: Code, reason: str) -> m.SendResultEntry:
    return m.SendResultEntry(status=m.Status(code=code, message=reason))


def _answer(call: Call, entry: m.SendResultEntry) -> None:
    if not call.is_over:
        call.code = entry.status.code
        call.reply(m.SendMessageResponse(status=entry.status, entries=(entry,)))


def _answer_all(call: Call, entries: list[m.SendResultEntry]) -> None:
    codes = {entry.status.code for entry in entries}
    status = entries[0].status if len(codes) == 1 else m.Status(code=Code.MULTIPLE_RESULTS, message="see the entries")
    call.code = status.code
    call.reply(m.SendMessageResponse(status=status, entries=entries))
