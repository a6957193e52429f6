"""From the bytes of a pull to the messages that a listener sees.

The broker compares hashes of tags only, so the exact tags are looked at here again. A message of a retry topic shows
the topic it was sent to. Names lose the client's namespace.

Java: client/impl/consumer/PullAPIWrapper.java#processPullResult, common/message/MessageDecoder.java
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeGuard

from rocketlet.client.compression import inflate
from rocketlet.client.consuming.message_batch import MessageBatch
from rocketlet.client.namespace import unwrap
from rocketlet.common import host
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import Buffer, Fields, fields, places
from rocketlet.common.subscription import TAG, Subscription

_host_text = lru_cache(4096)(host.host_text)


class MessageReader:
    """Makes messages of records, for one client's namespace and limit."""

    def __init__(self, namespace: str, max_inflated_size: int) -> None:
        self._namespace = namespace
        self._limit = max_inflated_size

    def pulled(
        self, body: Buffer, queue: MessageQueue, subscription: Subscription | None = None
    ) -> list[ReceivedMessage]:
        """The messages of a pull's answer that match the subscription. Raises RecordError, CannotInflate."""
        messages = []
        raw = bytes(body)  # a slice of bytes is one object, of a view two
        at, end = 0, len(raw)
        while at < end:
            message = self._message(fields(raw, at, end), queue)
            messages.append(message)
            at += message.store_size
        if _names_tags(subscription):
            return [message for message in messages if message.tags in subscription.tags]
        return messages

    def batch(self, body: Buffer, queue: MessageQueue, subscription: Subscription | None = None) -> MessageBatch:
        """`pulled` by columns. Raises RecordError, CannotInflate."""
        raw = bytes(body)
        batch = MessageBatch(self, raw, all_places := places(raw), queue)
        if _names_tags(subscription):
            matching = [place for place, tags in zip(all_places, batch.tags, strict=True) if tags in subscription.tags]
            if len(matching) < len(all_places):
                return MessageBatch(self, raw, matching, queue)
        return batch

    def at(self, raw: bytes, at: int, end: int, queue: MessageQueue) -> ReceivedMessage:
        """The message of one record."""
        return self._message(fields(raw, at, end), queue)

    def inflated(self, body: bytes, sys_flag: int) -> bytes:
        """A body as it was before its producer compressed it. Raises CannotInflate."""
        return inflate(body, sys_flag, self._limit)

    def single(self, body: Buffer, broker_name: str = "") -> ReceivedMessage:
        """The one message of a view, a transaction check or a direct consumption."""
        return self._shown(fields(body, 0, len(body)), broker_name)

    def several(self, body: Buffer, broker_name: str = "") -> list[ReceivedMessage]:
        """The messages of a query."""
        messages = []
        at, end = 0, len(body)
        while at < end:
            message = self._shown(fields(body, at, end), broker_name)
            messages.append(message)
            at += message.store_size
        return messages

    def _shown(self, record: Fields, broker_name: str) -> ReceivedMessage:
        """A message that was fetched by itself, in the queue that its record names."""
        return self._message(record, MessageQueue(record[0], broker_name, record[1]))

    def _message(self, record: Fields, queue: MessageQueue) -> ReceivedMessage:
        (
            topic, _, queue_offset, log_offset, body, raw_properties, flag, sys_flag, born_timestamp, born_host,
            store_timestamp, store_host, reconsume_times, prepared_offset, _, _, size,
        ) = record  # fmt: skip
        properties = names.decode_bytes(raw_properties)
        if sys_flag & flags.COMPRESSED:
            body = self.inflated(body, sys_flag)
        if "%" in topic:  # a retry topic or a namespace
            topic = unwrap(self._namespace, topic)
        offset_id = offset_message_id(store_host, log_offset)
        keys = properties.get(names.KEYS)
        return ReceivedMessage(
            topic, body, queue, queue_offset, log_offset, properties.get(names.UNIQ_KEY, offset_id), offset_id,
            born_timestamp, _host_text(born_host), store_timestamp, _host_text(store_host), reconsume_times,
            properties.get(names.TAGS), tuple(keys.split()) if keys else (), flag, sys_flag, properties,
            prepared_offset, size,
        )  # fmt: skip


def _names_tags(subscription: Subscription | None) -> TypeGuard[Subscription]:
    return subscription is not None and subscription.expression_type == TAG and bool(subscription.tags)


def restore_topic(message: ReceivedMessage, retry_topic: str, namespace: str = "") -> None:
    """A message that comes back from the group's retry topic shows the topic it was sent to."""
    if message.topic == retry_topic:
        original = message.properties.get(names.RETRY_TOPIC)
        if original is not None:
            message.topic = unwrap(namespace, original)
