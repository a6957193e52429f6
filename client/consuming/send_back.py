"""Sending a message that was not consumed to the group's retry topic, or to its dead letters.

First the short way: code 36, upon which the broker copies its own record. Where that fails, and for orderly consumers,
the message is sent again to `%RETRY%group`, with the properties from which the broker knows what it is; past its last
try the broker turns that into a dead letter.

Java: client/impl/consumer/DefaultMQPushConsumerImpl.java#sendMessageBack, ConsumeMessageOrderlyService.java
"""

from __future__ import annotations

import logging

from rocketlet.client.consuming.group_member import GroupMember
from rocketlet.client.errors import ClientError
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message, ReceivedMessage
from rocketlet.common.topic import retry_topic
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader

log = logging.getLogger("rocketlet.client.send_back")

CONCURRENT_MAX_TRIES = 16
UNBOUNDED = (1 << 31) - 1
FIRST_RETRY_LEVEL = 3


class SendBack:
    """Sends messages of one consumer back."""

    def __init__(self, consumer: GroupMember) -> None:
        self._consumer = consumer
        self._max = consumer.config.max_reconsume_times
        self._producer = InnerProducer(consumer.session)

    async def concurrent(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have a message redelivered. Raises ClientError if neither way worked; then it stays with this client."""
        session = self._consumer.session
        limit = self._max if self._max >= 0 else CONCURRENT_MAX_TRIES
        header = ConsumerSendMsgBackHeader(
            offset=message.log_offset,
            group=self._consumer.group,
            delayLevel=delay_level,
            originMsgId=message.message_id,
            originTopic=self._consumer.wire_topic(message.topic),
            unitMode=self._consumer.config.unit_mode,
            maxReconsumeTimes=limit,
            bname=message.queue.broker_name,
        )
        address = session.routes.master(message.queue.broker_name) or message.store_host
        try:
            await session.brokers.send_back(address, header)
        except ClientError as error:
            log.warning("%s could not be sent back, sending it to the retry topic again: %s", message.message_id, error)
            await self._resend_message(message, message.reconsume_times + 1, limit)

    async def orderly(self, message: ReceivedMessage) -> None:
        """Send a message of an ordered queue that had its last try to the dead letters. Raises ClientError."""
        await self._resend_message(message, message.reconsume_times, self.orderly_limit)

    @property
    def orderly_limit(self) -> int:
        """Tries of an orderly consumer; without end unless configured."""
        return self._max if self._max >= 0 else UNBOUNDED

    async def _resend_message(self, message: ReceivedMessage, reconsume_times: int, limit: int) -> None:
        copy = retry_message(self._consumer.group, message, self._consumer.wire_topic(message.topic))
        await self._producer.send(copy, reconsume_times, limit)


def retry_message(group: str, message: ReceivedMessage, wire_topic: str) -> Message:
    """The message as it goes to the retry topic. Its own level grows with its tries, as the broker's does."""
    properties = {
        name: value for name, value in message.properties.items() if name not in _NOT_COPIED and name not in _AS_FIELDS
    }
    properties[names.RETRY_TOPIC] = message.properties.get(names.RETRY_TOPIC, wire_topic)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
    return Message(
        topic=retry_topic(group),
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        delay_level=FIRST_RETRY_LEVEL + message.reconsume_times,
        flag=message.flag,
        properties=properties,
        wait_store=False,
    )


# TRAN_MSG would make the copy a half message; the broker sets its own properties on queues and counts again.
_NOT_COPIED = frozenset(
    {
        names.TRAN_MSG,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CONSUME_START_TIME,
        names.CLUSTER,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
    }
)
_AS_FIELDS = frozenset({names.TAGS, names.KEYS, names.DELAY, names.WAIT})
