"""From the bytes of a pull to the messages that a listener sees.

The broker compares hashes of tags only, so the exact tags are looked at here again. A message of a retry topic shows
the topic it was sent to. Names lose the client's namespace.

Java: client/impl/consumer/PullAPIWrapper.java#processPullResult, common/message/MessageDecoder.java
"""

from __future__ import annotations

from functools import lru_cache

from client.compression import inflate
from client.namespace import unwrap
from common import host
from common import message_flags as flags
from common import message_properties as names
from common.message import MessageQueue, ReceivedMessage
from common.message_id import offset_message_id
from common.message_record import Buffer, Record, decode, decode_all
from common.subscription import TAG, Subscription

_host_text = lru_cache(4096)(host.host_text)


class MessageReader:
    """Makes messages of records, for one client's namespace and limit."""

    def __init__(self, namespace: str, max_inflated_size: int) -> None:
        self._namespace = namespace
        self._limit = max_inflated_size

    def pulled(
        self, body: Buffer, queue: MessageQueue, subscription: Subscription | None = None
    ) -> list[ReceivedMessage]:
        """The messages of a pull's answer that the subscription really wants. Raises RecordError, CannotInflate."""
        records = decode_all(body)
        if subscription is not None and subscription.expression_type == TAG and subscription.tags:
            return [
                message for record in records if (message := self._message(record, queue)).tags in subscription.tags
            ]
        return [self._message(record, queue) for record in records]

    def single(self, body: Buffer, broker_name: str = "") -> ReceivedMessage:
        """The one message of a view, a transaction check or a direct consumption."""
        record = decode(body)
        return self._message(record, MessageQueue(record.topic, broker_name, record.queue_id))

    def several(self, body: Buffer, broker_name: str = "") -> list[ReceivedMessage]:
        """The messages of a query."""
        return [
            self._message(record, MessageQueue(record.topic, broker_name, record.queue_id))
            for record in decode_all(body)
        ]

    def _message(self, record: Record, queue: MessageQueue) -> ReceivedMessage:
        properties = names.decode_bytes(record.properties)
        body, sys_flag = record.body, record.sys_flag
        if sys_flag & flags.COMPRESSED:
            body = inflate(body, sys_flag, self._limit)
        topic = record.topic
        if "%" in topic:  # a retry topic or a namespace
            topic = unwrap(self._namespace, topic)
        offset_id = offset_message_id(record.store_host, record.log_offset)
        keys = properties.get(names.KEYS)
        return ReceivedMessage(
            topic, body, queue, record.queue_offset, record.log_offset,
            properties.get(names.UNIQ_KEY, offset_id), offset_id,
            record.born_timestamp, _host_text(record.born_host), record.store_timestamp, _host_text(record.store_host),
            record.reconsume_times, properties.get(names.TAGS), tuple(keys.split()) if keys else (),
            record.flag, sys_flag, properties, record.prepared_offset, record.size,
        )  # fmt: skip


def restore_topic(message: ReceivedMessage, retry_topic: str, namespace: str = "") -> None:
    """A message that comes back from the group's retry topic shows the topic it was sent to."""
    if message.topic == retry_topic:
        original = message.properties.get(names.RETRY_TOPIC)
        if original is not None:
            message.topic = unwrap(namespace, original)
