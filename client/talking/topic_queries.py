"""Queries about topics, queues and single messages that every client offers: RocketMQ's MQAdmin.

Java: client/MQAdmin.java, client/impl/MQAdminImpl.java
"""

from __future__ import annotations

import logging

from rocketlet.client import namespace
from rocketlet.client.errors import ClientError, InvalidUse
from rocketlet.client.sending.send_result import SendResult
from rocketlet.client.talking.broker_calls import readable
from rocketlet.client.talking.session import Session
from rocketlet.client.validators import check_flag, check_name, check_queue, check_text, check_whole
from rocketlet.common import message_properties as names
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id, time_of_unique_id
from rocketlet.common.topic import DEFAULT_TOPIC
from rocketlet.remoting.protocol.configuration import CreateTopicHeader
from rocketlet.remoting.protocol.popping import RecallMessageHeader
from rocketlet.remoting.transport import join_address

log = logging.getLogger("rocketlet.client.topic_queries")

_NO_END = (1 << 63) - 1
_EARLIEST = -(1 << 63)
_MOST_INT = (1 << 31) - 1


class TopicQueries:
    """The queries of one client. Queues and topics have the names that the user knows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._namespace = session.config.namespace

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        check_queue(queue)
        return namespace.wrap_queue(self._namespace, queue)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic can be read from."""
        check_name(topic)
        route = await self._session.route(namespace.wrap(self._namespace, topic))
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.readable]

    async def recall(self, group: str, sent: SendResult) -> str:
        """Have a delayed message never delivered; its id. Raises Refused where its moment has come."""
        if not isinstance(sent, SendResult) or not sent.recall_handle:
            raise InvalidUse("the result has no recall handle", advice="only a message sent with deliver_at has one")
        queue = self._wire(sent.queue)
        header = RecallMessageHeader(group, queue.topic, sent.recall_handle, queue.broker_name)
        return await self._session.brokers.recall(await self._session.reader_of(queue), header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message gets."""
        queue = self._wire(queue)
        return await self._session.brokers.max_offset(await self._session.reader_of(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        queue = self._wire(queue)
        return await self._session.brokers.min_offset(await self._session.reader_of(queue), queue)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        check_whole("timestamp", timestamp, _EARLIEST)
        queue = self._wire(queue)
        return await self._session.brokers.offset_at(await self._session.reader_of(queue), queue, timestamp)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the queue's oldest message was stored, in milliseconds; -1 where it has none."""
        queue = self._wire(queue)
        return await self._session.brokers.earliest_store_time(await self._session.reader_of(queue), queue)

    async def create_topic(self, topic: str, queues: int = 8, perm: int = 6) -> None:
        """Create or change a topic on all brokers that carry the default topic."""
        check_name(topic)
        check_whole("queues", queues, 1, _MOST_INT)
        check_whole("perm", perm, 0, _MOST_INT)
        route = await self._session.route(DEFAULT_TOPIC)
        header = CreateTopicHeader(
            topic=namespace.wrap(self._namespace, topic), readQueueNums=queues, writeQueueNums=queues, perm=perm
        )
        for broker_name in route.addresses:
            address = self._session.routes.master(broker_name)
            if address is not None:
                await self._session.brokers.create_topic(address, header)

    async def view(self, message_id: str, topic: str = "") -> ReceivedMessage:
        """One message by its offset message id, or with its topic also by its unique id."""
        check_text("message id", message_id)
        if topic != "":
            check_name(topic)
        try:
            ip, port, log_offset = parse_offset_message_id(message_id)
        except InvalidMessageId as error:
            raise InvalidUse(str(error)) from None
        if topic:
            message = await self._by_unique_id(topic, message_id)
            if message is not None:
                return message
        record = await self._session.brokers.view(join_address(ip, port), log_offset)
        with readable("the message", join_address(ip, port), topic):
            return self._session.reader.single(record, self._session.routes.name_at(join_address(ip, port)) or "")

    async def _by_unique_id(self, topic: str, unique_id: str) -> ReceivedMessage | None:
        try:
            begin = time_of_unique_id(unique_id, self._session.world.clock()) - 1000
        except InvalidMessageId:
            return None
        messages = await self.query(topic, unique_id, 32, begin, _NO_END, unique=True)
        return messages[0] if messages else None

    async def query(
        self, topic: str, key: str, at_most: int = 64, begin: int = 0, end: int = _NO_END, *, unique: bool = False
    ) -> list[ReceivedMessage]:
        """Messages by key (a word of `keys`, or a unique id), newest first, from all brokers; times in milliseconds.

        Brokers look up hashes; messages that merely have the same hash are left out here. A broker that cannot be asked
        is logged and its messages are missing, unless none could be asked.
        """
        check_name(topic)
        check_text("key", key)
        check_whole("at_most", at_most, 1, _MOST_INT)
        check_whole("begin", begin, _EARLIEST)
        check_whole("end", end, _EARLIEST)
        check_flag("unique", unique)
        wire = namespace.wrap(self._namespace, topic)
        route = await self._session.route(wire)
        result: list[ReceivedMessage] = []
        failure: ClientError | None = None
        has_answer = False
        for broker_name in route.addresses:
            address = self._session.routes.reader(broker_name)
            if address is None:
                continue
            try:
                records = await self._session.brokers.query(address, wire, key, at_most, begin, end, unique=unique)
                with readable("the messages", address, topic):
                    messages = self._session.reader.several(records, broker_name)
            except ClientError as error:
                log.warning("messages of %s at %s could not be queried: %s", topic, broker_name, error)
                failure = error
                continue
            has_answer = True
            result += [
                message for message in messages if key in message.keys or key == message.properties.get(names.UNIQ_KEY)
            ]
        if failure is not None and not has_answer:
            raise failure
        result.sort(key=lambda message: -message.store_timestamp)
        return result[:at_most]
