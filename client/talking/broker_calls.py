"""Every request that a client sends to a broker, as a typed function. No state, no retries: those belong to the
callers.

An answer with an error code becomes `Refused`, one that cannot be read `BadAnswer`, a broken or missing connection
`Unreachable`, silence `TimedOut`; each names the request, the topic and the broker. `calls` makes the calls on
connections; a test replaces it by a script.

Java: client/impl/MQClientAPIImpl.java
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from rocketlet.client.errors import BadAnswer, ClientError, Refused, TimedOut, Unreachable
from rocketlet.client.sending.send_result import STATUS_BY_CODE
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import RecordError
from rocketlet.common.subscription import Subscription
from rocketlet.remoting import errors as remoting_errors
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.protocol import configuration, membership, offsets, popping, pulling, sending, transactions
from rocketlet.remoting.protocol.header import Header, HeaderT, from_ext
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import POLLING_FULL, POLLING_TIMEOUT, ResponseCode, response_name

SUCCESS = int(ResponseCode.SUCCESS)
PULL_CODES = frozenset(
    {
        SUCCESS,
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        int(ResponseCode.PULL_OFFSET_MOVED),
    }
)
QUERY_CODES = frozenset({SUCCESS, int(ResponseCode.QUERY_NOT_FOUND)})
POP_CODES = frozenset({SUCCESS, int(ResponseCode.PULL_NOT_FOUND), POLLING_FULL, POLLING_TIMEOUT})
SEND_CODES = frozenset(STATUS_BY_CODE)
OFFSET_TIMEOUT = 5.0  # RocketMQ's, for offsets and for sending back
LOCK_TIMEOUT = 1.0
_MOST_MEMBERS = 100_000  # of a group, who are sorted whenever its queues are allocated

PullAnswer: TypeAlias = tuple[int, pulling.PullMessageAnswerHeader, bytes | memoryview]


class Calls(Protocol):
    """The connections: a call waits for its answer, a one-way request does not."""

    async def call(self, address: str, command: Command, timeout: float) -> Command: ...

    async def oneway(self, address: str, command: Command) -> None: ...


def subscription_data(subscription: Subscription) -> membership.SubscriptionData:
    """A subscription as heartbeats carry it."""
    return membership.SubscriptionData(
        topic=subscription.topic,
        subString=subscription.expression,
        tagsSet=sorted(subscription.tags),
        codeSet=sorted(subscription.codes),
        subVersion=subscription.version,
        expressionType=subscription.expression_type,
    )


class BrokerCalls:
    """The requests. Addresses are `host:port`; those of the VIP channel are two ports below where it is on."""

    def __init__(self, calls: Calls, timeout: float = 3.0, *, vip: bool = False) -> None:
        self._calls = calls
        self._timeout = timeout
        self._vip = vip

    # ---- membership

    async def heartbeat(self, address: str, body: bytes) -> int:
        """34; the broker's version."""
        return (await self._ask(address, RequestCode.HEART_BEAT, None, body)).version

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        """35."""
        header = membership.UnregisterClientHeader(
            clientID=client_id, producerGroup=producer_group, consumerGroup=consumer_group
        )
        await self._ask(address, RequestCode.UNREGISTER_CLIENT, header)

    async def members(self, address: str, group: str) -> list[str]:
        """38: the client ids of a group."""
        header = membership.GetConsumerListHeader(consumerGroup=group)
        answer = await self._ask(self.vip(address), RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        with readable("the list of members", address):
            members = membership.ConsumerListBody.from_json(answer.body).consumerIdList
        if len(members) > _MOST_MEMBERS:
            raise BadAnswer(
                f"the group {group} has {len(members)} members, the client takes at most {_MOST_MEMBERS}",
                broker=address,
            )
        return members

    async def check_subscription(self, address: str, client_id: str, group: str, subscription: Subscription) -> None:
        """46: raises Refused where the broker cannot filter by this expression."""
        body = membership.CheckClientBody(client_id, group, subscription_data(subscription))
        await self._ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, body.to_json(), topic=subscription.topic)

    async def lock(self, address: str, client_id: str, group: str, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """41: those of the queues that are locked for this client now."""
        body = membership.LockBatchBody(client_id, group, [WireQueue.of(queue) for queue in queues]).to_json()
        answer = await self._ask(self.vip(address), RequestCode.LOCK_BATCH_MQ, None, body, timeout=LOCK_TIMEOUT)
        with readable("the answer to a lock", address):
            return {locked.queue for locked in membership.LockBatchAnswerBody.from_json(answer.body).lockOKMQSet}

    async def unlock(self, address: str, client_id: str, group: str, queue: MessageQueue) -> None:
        """42, one-way."""
        body = membership.LockBatchBody(client_id, group, [WireQueue.of(queue)]).to_json()
        await self._command(address, RequestCode.UNLOCK_BATCH_MQ, None, body)

    # ---- offsets

    async def committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """14; None where the group has no offset there. RocketMQ 4.9 treats any refusal as that, we only code 22."""
        header = offsets.QueryConsumerOffsetHeader(
            queueId=queue.queue_id, topic=queue.topic, consumerGroup=group, bname=queue.broker_name
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._ask(self.vip(address), code, header, timeout=OFFSET_TIMEOUT, good=QUERY_CODES)
        return _offset_in(answer, address) if answer.code == SUCCESS else None

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int, *, wait: bool = False) -> None:
        """15, one-way as RocketMQ has it unless `wait`."""
        address, code = self.vip(address), RequestCode.UPDATE_CONSUMER_OFFSET
        header = offsets.UpdateConsumerOffsetHeader(
            queueId=queue.queue_id, commitOffset=offset, topic=queue.topic, consumerGroup=group, bname=queue.broker_name
        )
        if wait:
            await self._ask(address, code, header, timeout=OFFSET_TIMEOUT)
        else:
            await self._command(address, code, header)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """30: the offset that the next message gets."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, _queue_header(queue))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """31: the offset of the oldest message."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, _queue_header(queue))

    async def offset_at(self, address: str, queue: MessageQueue, timestamp: int) -> int:
        """29: the first offset stored at or after a time in ms; a RocketMQ 4.9 broker answers the nearest."""
        header = offsets.SearchOffsetHeader(
            queueId=queue.queue_id, timestamp=timestamp, topic=queue.topic, boundaryType="LOWER",
            bname=queue.broker_name,
        )  # fmt: skip
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, address: str, code: RequestCode, header: Header) -> int:
        return _offset_in(await self._ask(self.vip(address), code, header, timeout=OFFSET_TIMEOUT), address)

    async def earliest_store_time(self, address: str, queue: MessageQueue) -> int:
        """32: when the oldest message was stored, in ms; -1 where there is none."""
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = await self._ask(self.vip(address), code, _queue_header(queue), timeout=OFFSET_TIMEOUT)
        return _read(offsets.TimestampAnswerHeader, answer, "the answer about a queue", address, queue.topic).timestamp

    # ---- messages

    async def pull(self, address: str, header: pulling.PullMessageHeader, timeout: float) -> PullAnswer:
        """11: the code (0, 19, 20 or 21), where to go on, and the records. The VIP port does not serve it."""
        answer = await self._ask(address, RequestCode.PULL_MESSAGE, header, timeout=timeout, good=PULL_CODES)
        return read_pull(answer, address, header.topic)

    # ---- pop

    async def pop(
        self, address: str, header: popping.PopMessageHeader, timeout: float
    ) -> tuple[popping.PopMessageAnswerHeader | None, bytes | memoryview]:
        """200050: what was taken, or None where there was nothing in the time that the header gives."""
        answer = await self._ask(address, RequestCode.POP_MESSAGE, header, timeout=timeout, good=POP_CODES)
        if answer.code != SUCCESS:
            return None, b""
        return _read(popping.PopMessageAnswerHeader, answer, "the answer to a pop", address, header.topic), answer.body

    async def notified(self, address: str, header: popping.NotificationHeader, timeout: float) -> bool:
        """200054: whether there is something to pop."""
        answer = await self._ask(address, RequestCode.NOTIFICATION, header, timeout=timeout, good=POP_CODES)
        subject = "the answer to a notification"
        return _read(popping.NotificationAnswerHeader, answer, subject, address, header.topic).hasMsg

    async def acknowledge(self, address: str, body: popping.BatchAckBody) -> None:
        """200151."""
        await self._ask(address, RequestCode.BATCH_ACK_MESSAGE, None, body.to_json())

    async def change_invisible_time(
        self, address: str, header: popping.ChangeInvisibleTimeHeader
    ) -> popping.ChangeInvisibleTimeAnswerHeader:
        """200053."""
        answer = await self._ask(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        kind = popping.ChangeInvisibleTimeAnswerHeader
        return _read(kind, answer, "the answer to a change", address, header.topic)

    async def recall(self, address: str, header: popping.RecallMessageHeader) -> str:
        """370: the unique id of the message that is not delivered."""
        answer = await self._ask(address, RequestCode.RECALL_MESSAGE, header)
        return _read(popping.RecallMessageAnswerHeader, answer, "the answer to a recall", address, header.topic).msgId

    async def view(self, address: str, log_offset: int) -> bytes | memoryview:
        """33: the record at a place of the log."""
        header = pulling.ViewMessageHeader(offset=log_offset)
        return (await self._ask(self.vip(address), RequestCode.VIEW_MESSAGE_BY_ID, header)).body

    async def query(
        self, address: str, topic: str, key: str, at_most: int, begin: int, end: int, *, unique: bool = False
    ) -> bytes | memoryview:
        """12: the records with a key; empty where there are none."""
        header = pulling.QueryMessageHeader(
            topic=topic, key=key, maxNum=at_most, beginTimestamp=begin, endTimestamp=end,
            uniqueKeyQuery=unique or None,
        )  # fmt: skip
        code, timeout = RequestCode.QUERY_MESSAGE, 3 * self._timeout
        answer = await self._ask(self.vip(address), code, header, timeout=timeout, good=QUERY_CODES)
        return answer.body if answer.code == SUCCESS else b""

    async def send(
        self,
        address: str,
        header: sending.SendMessageHeaderV2,
        body: bytes,
        *,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        timeout: float | None = None,
    ) -> Command:
        """310 or 325, for the rare sends of the client itself; those of users go through the pipeline."""
        return await self._ask(self.vip(address), code, header, body, timeout=timeout, good=SEND_CODES)

    async def send_back(self, address: str, header: sending.ConsumerSendMsgBackHeader) -> None:
        """36: store the message for a later try."""
        topic = header.originTopic or ""
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._ask(self.vip(address), code, header, topic=topic, timeout=OFFSET_TIMEOUT)

    async def end_transaction(
        self, address: str, header: transactions.EndTransactionHeader, remark: str | None
    ) -> None:
        """37, one-way."""
        await self._command(address, RequestCode.END_TRANSACTION, header, remark=remark)

    async def create_topic(self, address: str, header: configuration.CreateTopicHeader) -> None:
        """17."""
        await self._ask(self.vip(address), RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    # ---- how

    def vip(self, address: str) -> str:
        """The address of the VIP channel, where that is on."""
        if not self._vip:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}" if port.isdecimal() else address

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        *,
        topic: str = "",
        timeout: float | None = None,
        good: frozenset[int] = frozenset({SUCCESS}),
    ) -> Command:
        """Errors name the topic, which is the header's if it has one."""
        topic = topic or getattr(header, "topic", "")
        try:
            answer = await self._calls.call(address, request(code, header, body), timeout or self._timeout)
        except remoting_errors.RemotingError as error:
            raise translated(error, request_name(code), address, topic) from error
        if answer.code not in good:
            raise refusal(answer, request_name(code), address, topic)
        return answer

    async def _command(
        self, address: str, code: RequestCode, header: Header | None, body: bytes = b"", *, remark: str | None = None
    ) -> None:
        try:
            await self._calls.oneway(address, request(code, header, body, remark=remark))
        except remoting_errors.RemotingError as error:
            raise translated(error, request_name(code), address, "") from error


def _queue_header(queue: MessageQueue) -> offsets.QueueHeader:
    return offsets.QueueHeader(queueId=queue.queue_id, topic=queue.topic, bname=queue.broker_name)


def _offset_in(answer: Command, address: str) -> int:
    return _read(offsets.OffsetAnswerHeader, answer, "the answer about an offset", address).offset


def _read(kind: type[HeaderT], answer: Command, subject: str, address: str, topic: str = "") -> HeaderT:
    """The typed header of an answer. Raises BadAnswer."""
    with readable(subject, address, topic):
        return from_ext(kind, answer.ext)


@contextmanager
def readable(subject: str, address: str, topic: str = "") -> Iterator[None]:
    """For the reading of an answer: errors in it become a BadAnswer."""
    try:
        yield
    except (remoting_errors.HeaderError, remoting_errors.BodyError, RecordError) as error:
        raise BadAnswer(f"{subject} cannot be read: {error}", topic=topic, broker=address) from error


def read_pull(answer: Command, address: str, topic: str) -> PullAnswer:
    """What `BrokerCalls.pull` returns. Raises Refused, BadAnswer."""
    if answer.code not in PULL_CODES:
        raise refusal(answer, request_name(RequestCode.PULL_MESSAGE), address, topic)
    header = _read(pulling.PullMessageAnswerHeader, answer, "the answer to a pull", address, topic)
    if header.nextBeginOffset < 0:
        raise BadAnswer(f"the answer to a pull says to go on at {header.nextBeginOffset}", broker=address)
    return answer.code, header, answer.body


def refusal(answer: Command, subject: str, address: str, topic: str) -> Refused:
    """The error of an answer with an error code."""
    name, remark = response_name(answer.code), answer.remark or ""
    text = f"{subject} was refused with {name} ({answer.code}){f': {remark}' if remark else ''}"
    advice = _ADVICE.get(answer.code, "")
    return Refused(text, code=answer.code, remark=remark, topic=topic, broker=address, advice=advice)


_ADVICE = {
    int(ResponseCode.SYSTEM_BUSY): "the broker is overloaded: send slower, or try again in a moment",
    int(ResponseCode.MESSAGE_ILLEGAL): "check the sizes of body, properties and topic name",
    int(ResponseCode.SERVICE_NOT_AVAILABLE): "the broker does not take messages: look at its disk and its role",
    int(ResponseCode.NO_PERMISSION): "check the permissions of topic, group and broker",
    int(ResponseCode.TOPIC_NOT_EXIST): "create the topic, or let the broker do so (autoCreateTopicEnable)",
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): "correct the filter expression",
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): "create the group, or let the broker do so "
    "(autoCreateSubscriptionGroup)",
}


def translated(error: remoting_errors.RemotingError, subject: str, address: str, topic: str) -> ClientError:
    """A failure of the connection as the error that users of the client see."""
    if isinstance(error, remoting_errors.CallTimeout):
        return TimedOut(f"{subject} was not answered: {error}", topic=topic, broker=address)
    return Unreachable(f"{subject} did not get through: {error}", topic=topic, broker=address)
