"""Sends that the client itself makes: messages to a retry topic, and replies to requests.

They are rare and have header fields that no user's send has, so they go as plain calls, each to up to three brokers.

Java: client/impl/factory/MQClientInstance.java (defaultMQProducer)
"""

from __future__ import annotations

import logging

from rocketlet.client.compression import compress
from rocketlet.client.errors import ClientError, NoRoute
from rocketlet.client.sending.queue_selection import choose
from rocketlet.client.talking.session import Session
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message
from rocketlet.common.topic import DEFAULT_TOPIC, INNER_PRODUCER_GROUP
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.client.inner_producer")

_TRIES = 3
_DEFAULT_QUEUES = 4
_COMPRESS_OVER = 4096


class InnerProducer:
    """Sends with any header, over the connections of a session. Topics are those on the wire."""

    def __init__(self, session: Session, group: str = INNER_PRODUCER_GROUP) -> None:
        self._session = session
        self._group = group

    async def send(self, message: Message, reconsume_times: int, max_reconsume_times: int) -> None:
        """A message to a retry topic. Raises ClientError."""
        header = self._header(message, {})
        header.reconsumeTimes = reconsume_times
        header.maxReconsumeTimes = max_reconsume_times
        await self._send(message, header, RequestCode.SEND_MESSAGE_V2)

    async def reply(self, message: Message, extra: dict[str, str], timeout: float | None = None) -> None:
        """A reply to a request. Raises ClientError."""
        await self._send(message, self._header(message, extra), RequestCode.SEND_REPLY_MESSAGE_V2, timeout)

    def _header(self, message: Message, extra: dict[str, str]) -> SendMessageHeaderV2:
        properties = {names.UNIQ_KEY: self._session.unique_ids(), **message.all_properties(), **extra}
        return SendMessageHeaderV2(
            queueId=0,
            topic=message.topic,
            producerGroup=self._group,
            defaultTopic=DEFAULT_TOPIC,
            defaultTopicQueueNums=_DEFAULT_QUEUES,
            bornTimestamp=self._session.world.clock(),
            flag=message.flag,
            properties=names.encode(properties),
        )

    async def _send(
        self, message: Message, header: SendMessageHeaderV2, code: RequestCode, timeout: float | None = None
    ) -> None:
        body = message.body
        if len(body) > _COMPRESS_OVER:
            packed = compress(body)
            if len(packed) < len(body):
                body, header.sysFlag = packed, flags.COMPRESSED
        avoid: str | None = None
        for tries_left in range(_TRIES - 1, -1, -1):
            route = await self._session.publish_route(message.topic, DEFAULT_TOPIC, _DEFAULT_QUEUES)
            queue = choose(route.writable, route.next_turn(), avoid)
            address = self._session.routes.master(queue.broker_name)
            try:
                if address is None:
                    raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
                header.queueId = queue.queue_id
                await self._session.brokers.send(address, header, body, code=code, timeout=timeout)
            except ClientError as error:
                if not tries_left:
                    raise
                log.info("a send to %s failed, trying another broker: %s", queue, error)
                avoid = queue.broker_name
            else:
                return
