"""Messages for mqadmin: found by key, id or offset, or pulled queue by queue, and their display.

Java: tools/admin/DefaultMQAdminExtImpl.java (viewMessage, queryMessage)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from rocketlet.client.consuming.received_messages import MessageReader
from rocketlet.common.clock import system_clock
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.common.subscription import Subscription, parse_tags
from rocketlet.common.topic import PERM_READ, TOOLS_GROUP
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.transport import join_address
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import AdminError, wire_time
from rocketlet.tools.output import text_of

BATCH = 32
PULL_SECONDS = 10.0
NO_END = (1 << 63) - 1
_LARGEST = 64 << 20  # of an inflated body

_reader = MessageReader("", _LARGEST)


async def queues_of(calls: Admin, topic: str) -> dict[MessageQueue, str]:
    """The readable queues of a topic, in order, with the address of the master of each."""
    route = await calls.route(topic)
    masters = await calls.masters_of(topic)
    return {
        MessageQueue(topic, queue_data.brokerName, number): masters[queue_data.brokerName]
        for queue_data in sorted(route.queueDatas, key=lambda queue_data: queue_data.brokerName)
        if queue_data.perm & PERM_READ and queue_data.brokerName in masters
        for number in range(queue_data.readQueueNums)
    }


async def span(calls: Admin, address: str, queue: MessageQueue, begin: int | None, end: int | None) -> tuple[int, int]:
    """The offset of the first message stored between two times (ms), and the one after the last; None is no bound."""
    first = await calls.brokers.min_offset(address, queue)
    end_offset = await calls.brokers.max_offset(address, queue)
    if begin is not None:
        first = max(first, await calls.brokers.offset_at(address, queue, begin))
    if end is not None:
        # The offset nearest to the time is the last candidate; the messages themselves decide exactly.
        end_offset = min(end_offset, await calls.brokers.offset_at(address, queue, end) + 1)
    return first, end_offset


async def pulled(
    calls: Admin, address: str, queue: MessageQueue, first: int, end_offset: int, expression: str = "*"
) -> AsyncIterator[ReceivedMessage]:
    """The messages of a queue from one offset up to another."""
    subscription = parse_tags(queue.topic, expression, system_clock())
    while first < end_offset:
        messages, first = await _pull(calls, address, queue, first, min(BATCH, end_offset - first), subscription)
        for message in messages:
            if message.queue_offset < end_offset:
                yield message


async def _pull(
    calls: Admin, address: str, queue: MessageQueue, offset: int, count: int, subscription: Subscription
) -> tuple[list[ReceivedMessage], int]:
    header = pulling.PullMessageHeader(
        queueId=queue.queue_id,
        queueOffset=offset,
        maxMsgNums=count,
        topic=queue.topic,
        consumerGroup=TOOLS_GROUP,
        sysFlag=pulling.SUBSCRIPTION,
        subscription=subscription.expression,
        subVersion=subscription.version,
        expressionType="TAG",
    )
    code, answer, body = await calls.brokers.pull(address, header, PULL_SECONDS)
    if code == ResponseCode.SUCCESS:
        return _reader.pulled(body, queue, subscription), answer.nextBeginOffset
    if code == ResponseCode.PULL_NOT_FOUND or answer.nextBeginOffset <= offset:
        return [], NO_END
    return [], answer.nextBeginOffset


async def at_offset(calls: Admin, broker_name: str, topic: str, queue_id: int, offset: int) -> ReceivedMessage:
    """The message at one place of one queue. Raises AdminError."""
    queue = MessageQueue(topic, broker_name, queue_id)
    address = (await calls.masters_of(topic)).get(broker_name)
    if address is None:
        raise AdminError(f"broker {broker_name} does not serve topic {topic}; topicRoute lists those that do")
    messages = [
        message async for message in pulled(calls, address, queue, offset, offset + 1) if message.queue_offset == offset
    ]
    if messages:
        return messages[0]
    raise AdminError(f"queue {queue} has no message at {offset}; topicStatus says what it holds")


async def by_offset_id(calls: Admin, message_id: str) -> tuple[ReceivedMessage, str]:
    """The message of an offset id, and the address of its broker. Raises AdminError, including for an id of another
    kind."""
    try:
        ip, port, log_offset = parse_offset_message_id(message_id)
    except InvalidMessageId as error:
        raise AdminError(f"{error}; an id that a producer gave needs queryMsgByUniqueKey -t TOPIC -i ID") from None
    address = join_address(ip, port)
    name = await calls.broker_name(address)
    if name is None:
        raise AdminError(
            f"no broker is at {address}, which is what {message_id} says as an offset id; an id that a producer gave"
            " needs queryMsgByUniqueKey -t TOPIC -i ID"
        )
    return _reader.single(await calls.brokers.view(address, log_offset), name), address


async def by_key(calls: Admin, topic: str, key: str, limit: int, *, unique: bool = False) -> list[ReceivedMessage]:
    """Messages with a key, newest first; hash collisions are left out."""
    messages: list[ReceivedMessage] = []
    for name, address in (await calls.masters_of(topic)).items():
        records = await calls.brokers.query(address, topic, key, limit, 0, NO_END, unique=unique)
        messages += [
            message for message in _reader.several(records, name) if key in message.keys or key == message.message_id
        ]
    return sorted(messages, key=lambda message: -message.store_timestamp)


def row_of(message: ReceivedMessage) -> dict[str, Any]:
    """A message as JSON has it."""
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "logOffset": message.log_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "properties": message.properties,
        "body": text_of(message.body),
    }


def lines_of(message: ReceivedMessage) -> list[str]:
    """A message in full, for people, as queryMsgById shows it."""
    properties = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    fields = {
        "OffsetID": message.offset_message_id,
        "Topic": message.topic,
        "Tags": f"[{message.tags or 'null'}]",
        "Keys": f"[{' '.join(message.keys)}]",
        "Queue ID": message.queue.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.log_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": wire_time(message.born_timestamp, fraction=True),
        "Store Timestamp": wire_time(message.store_timestamp, fraction=True),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": f"{{{properties}}}",
        "Message Body": text_of(message.body),
    }
    return [f"{name + ':':<20} {value}" for name, value in fields.items()]


def line_of(message: ReceivedMessage, *, body: bool = True) -> str:
    """A message in one line, as printMsg shows it."""
    properties = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    body_text = f" BODY: {text_of(message.body)}" if body else ""
    return (
        f"MSGID: {message.message_id} MessageExt [brokerName={message.queue.broker_name}, "
        f"queueId={message.queue.queue_id}, storeSize={message.store_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, "
        f"msgId={message.offset_message_id}, commitLogOffset={message.log_offset}, "
        f"reconsumeTimes={message.reconsume_times}, preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"topic={message.topic}, flag={message.flag}, properties={{{properties}}}]{body_text}"
    )
