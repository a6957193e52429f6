"""From the bytes of a pull to the messages that users see, one by one or as a batch of columns.

A message costs 2.2 µs to decode whole, and many listeners read no more than its body. So pulled messages have their
body and their place only, for 0.8 µs, until a listener asks one of them for something else. That one is decoded then,
which costs more than at once, so all that are pulled afterwards are decoded at once.

The broker compares hashes of tags only, so the exact tags are looked at here again. A message of a retry topic shows
the topic it was sent to. Names lose the client's namespace.

Java: client/impl/consumer/PullAPIWrapper.java#processPullResult, common/message/MessageDecoder.java
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, SupportsIndex, TypeGuard, overload

from rocketlet.client.compression import inflate
from rocketlet.client.namespace import unwrap
from rocketlet.common import host
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import HEAD, HEAD_SIZE, MAGIC_V1, Buffer, Fields, Place, fields, places
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.common.topic import is_retry_topic

log = logging.getLogger("rocketlet.client.received_messages")

# An answer may unfold into so many times what a single body may: 16 MiB of zeros as zlib are 16 GiB.
_AS_MANY = 4
_THAT_MUCH = "for they unfold into as much as one may (max_inflated_size)"
_host_text = lru_cache(4096)(host.host_text)
_TAGS, _KEYS = names.TAGS.encode(), names.KEYS.encode()


class MessageReader:
    """Makes messages of records, for one client's namespace and limit."""

    def __init__(self, namespace: str, max_inflated_size: int) -> None:
        self._namespace = namespace
        self._limit = max_inflated_size
        self._most_together = _AS_MANY * max_inflated_size
        self.rest_from: int | None = None
        """The queue offset from which the last answer was left out, because what was read of it unfolds into as much as
        an answer may; None where it was read to its end."""
        self.is_asked_for_all = False
        """Whether a field of a pulled message had to be decoded later."""

    def pulled(
        self, body: Buffer, queue: MessageQueue, subscription: Subscription | None = None, *, whole: bool = False
    ) -> list[ReceivedMessage]:
        """The messages of a pull's answer that match the subscription, up to `rest_from`. Raises RecordError,
        CannotInflate."""
        self.rest_from, unfolded = None, 0
        raw = bytes(body)  # a slice of bytes is one object, of a view two
        if _names_tags(subscription):
            return [message for message in self._messages(raw, queue) if message.tags in subscription.tags]
        if whole or self.is_asked_for_all:
            return self._messages(raw, queue)
        messages: list[ReceivedMessage] = []
        new = ReceivedMessage.__new__
        for at, body_at, body_end, properties_at, end, queue_offset, sys_flag, _, _ in places(raw):
            if sys_flag & flags.COMPRESSED or body_at - at != HEAD_SIZE:
                if unfolded > self._most_together:
                    self.rest_from = queue_offset
                    break
                messages.append(self.message_at(raw, at, end, queue))
                unfolded += len(messages[-1].body)
                continue
            message = new(ReceivedMessage)
            message.body = raw[body_at:body_end]
            message.queue = queue
            message.queue_offset = queue_offset
            message._undecoded = self, raw[at:body_at], raw[body_end:properties_at], raw[properties_at:end]
            message.__class__ = UndecodedMessage
            messages.append(message)
        return messages

    def batch(self, body: Buffer, queue: MessageQueue, subscription: Subscription | None = None) -> MessageBatch:
        """`pulled` by columns. Raises RecordError, CannotInflate."""
        raw = bytes(body)
        all_places = places(raw)
        batch = MessageBatch(self, raw, all_places, queue, self._most_together)
        self.rest_from = all_places[len(batch)].queue_offset if len(batch) < len(all_places) else None
        if _names_tags(subscription):
            read = all_places[: len(batch)]
            matching = [place for place, tags in zip(read, batch.tags, strict=True) if tags in subscription.tags]
            if len(matching) < len(read):
                return MessageBatch(self, raw, matching, queue)
        return batch

    def message_at(self, raw: bytes, begin: int, end: int, queue: MessageQueue) -> ReceivedMessage:
        """The message of one record."""
        return self._message(fields(raw, begin, end), queue)

    def inflated(self, body: bytes, sys_flag: int) -> bytes:
        """A body as it was before its producer compressed it. Raises CannotInflate."""
        return inflate(body, sys_flag, self._limit)

    def single(self, body: Buffer, broker_name: str = "") -> ReceivedMessage:
        """The one message of a view, a transaction check or a direct consumption."""
        record = fields(body, 0, len(body))
        return self._message(record, MessageQueue(record[0], broker_name, record[1]))

    def several(self, body: Buffer, broker_name: str = "") -> list[ReceivedMessage]:
        """The messages of a query or a pop."""
        messages = self._messages(body, None, broker_name)
        if self.rest_from is not None:
            log.warning("only %d messages of an answer of %s are read, %s", len(messages), broker_name, _THAT_MUCH)
        return messages

    def _messages(self, raw: Buffer, queue: MessageQueue | None, broker_name: str = "") -> list[ReceivedMessage]:
        """Messages of one queue, or each of the queue that its record names."""
        self.rest_from, unfolded = None, 0
        messages = []
        begin, end = 0, len(raw)
        while begin < end:
            record = fields(raw, begin, end)
            if unfolded > self._most_together:
                self.rest_from = record[2]
                break
            message = self._message(record, queue or MessageQueue(record[0], broker_name, record[1]))
            messages.append(message)
            if message.sys_flag & flags.COMPRESSED:
                unfolded += len(message.body)
            begin += message.store_size
        return messages

    def _message(self, record: Fields, queue: MessageQueue) -> ReceivedMessage:
        message = ReceivedMessage(*self.decoded(record, queue))
        message._record = self, record, queue
        return message

    def decoded(self, record: Fields, queue: MessageQueue) -> tuple[Any, ...]:
        """The values of a message, in the order of its fields."""
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
        return (
            topic, body, queue, queue_offset, log_offset, properties.get(names.UNIQ_KEY, offset_id), offset_id,
            born_timestamp, _host_text(born_host), store_timestamp, _host_text(store_host), reconsume_times,
            properties.get(names.TAGS), tuple(keys.split()) if keys else (), flag, sys_flag, properties,
            prepared_offset, size,
        )  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class _Decoding(ReceivedMessage):
    """A message some of whose fields may have no value yet; whoever asks for one makes it whole.

    A dataclass of its own for the sake of its own `__init__`, whose stores the interpreter then specializes.
    """

    def _decode(self) -> None:
        undecoded = self._undecoded
        if undecoded is None:
            return  # another thread has just done it
        reader, head, topic, properties = undecoded
        reader.is_asked_for_all = True
        (
            size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_timestamp, born_host,
            store_timestamp, store_host, reconsume_times, prepared_offset, _,
        ) = HEAD.unpack(head)  # fmt: skip
        topic = str(topic[1 if magic == MAGIC_V1 else 2 : -2], "utf-8", "replace")
        record = (
            topic, queue_id, queue_offset, log_offset, self.body, properties, flag, sys_flag, born_timestamp,
            born_host, store_timestamp, store_host, reconsume_times, prepared_offset, crc, magic, size,
        )  # fmt: skip
        values = reader.decoded(record, self.queue)
        object.__setattr__(self, "__class__", _Decoding)
        self._record = reader, record, self.queue
        _Decoding.__init__(self, *values)
        self.__class__ = ReceivedMessage  # type: ignore[assignment]  # last: another thread may be reading a field
        self._undecoded = None

    def __getattr__(self, name: str) -> Any:
        if name not in ReceivedMessage.__slots__:
            raise AttributeError(f"a message has no {name}", name=name, obj=self)
        self._decode()
        return getattr(self, name)

    def __eq__(self, other: object) -> bool:
        self._decode()
        return self == other

    __hash__ = None  # type: ignore[assignment]  # a message may change

    def __repr__(self) -> str:
        self._decode()
        return repr(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        self._decode()
        return self.__reduce_ex__(protocol)


class UndecodedMessage(_Decoding):
    """A message that has only its body, its queue and its offset. Whatever else is done with it makes it whole, and
    then it is a plain ReceivedMessage."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        self._decode()
        setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._decode()
        delattr(self, name)


def _names_tags(subscription: Subscription | None) -> TypeGuard[Subscription]:
    return subscription is not None and subscription.expression_type == TAG and bool(subscription.tags)


def as_pulled(message: ReceivedMessage, tries: int = 0) -> ReceivedMessage:
    """The message anew, with so many more tries: its listener may have written anything into the one it had."""
    if isinstance(message, UndecodedMessage):
        message._decode()
    try:
        reader, record, queue = message._record
    except AttributeError:
        return message  # not pulled: a copy, or made by its user
    record = (*record[:12], record[12] + tries, *record[13:])
    anew: ReceivedMessage = reader._message(record, queue)
    if is_retry_topic(queue.topic):
        restore_topic(anew, queue.topic, reader._namespace)
    return anew


def restore_topic(message: ReceivedMessage, retry_topic: str, namespace: str = "") -> None:
    """A message that comes back from the group's retry topic shows the topic it was sent to."""
    if message.topic == retry_topic:
        original = message.properties.get(names.RETRY_TOPIC)
        if original is not None:
            message.topic = unwrap(namespace, original)


class MessageBatch(Sequence[ReceivedMessage]):
    """What one pull brought, by columns: the bodies at once, everything else when it is first asked for.

        for batch in consumer.batches():
            table.insert(zip(batch.offsets, batch.bodies))

    Messages of one queue, in the order of their offsets; columns are lists, of one value for each message. A message
    costs 1 µs to find and to cut out, where a `ReceivedMessage` costs 3; so this is for those who handle many messages
    alike. `batch[3]` and `for message in batch` still make whole messages, and `batch[3:]` is a batch.
    """

    def __init__(
        self,
        reader: MessageReader,
        raw: bytes,
        places: Sequence[Place],
        queue: MessageQueue,
        most_unfolded: float = math.inf,
    ) -> None:
        """`raw` holds the records. It ends before one that would be unfolded although those before it have unfolded
        into more than so many bytes. Raises CannotInflate."""
        unfolded = 0
        self._reader = reader
        self._raw = raw
        self._places = places
        self.queue = queue
        self.bodies: list[bytes] = [raw[place.body_at : place.body_end] for place in places]
        """Inflated where they were sent compressed."""
        for number, place in enumerate(places):
            if place.sys_flag & flags.COMPRESSED:
                if unfolded > most_unfolded:
                    del self.bodies[number:]
                    self._places = places[:number]
                    break
                self.bodies[number] = reader.inflated(self.bodies[number], place.sys_flag)
                unfolded += len(self.bodies[number])

    @property
    def topic(self) -> str:
        """The topic that was subscribed to."""
        return self.queue.topic

    @cached_property
    def offsets(self) -> list[int]:
        """Their places in the queue."""
        return [place.queue_offset for place in self._places]

    @cached_property
    def born_times(self) -> list[int]:
        """When the producers made them, in ms since 1970."""
        return [place.born_timestamp for place in self._places]

    @cached_property
    def store_times(self) -> list[int]:
        """When the broker stored them, in ms since 1970."""
        return [place.store_timestamp for place in self._places]

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        return [names.decode_bytes(raw) for raw in self._raw_properties]

    @cached_property
    def tags(self) -> list[str | None]:
        values = (names.find(raw, _TAGS) for raw in self._raw_properties)
        return [None if tags is None else str(tags, "utf-8", "replace") for tags in values]

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        values = (names.find(raw, _KEYS) for raw in self._raw_properties)
        return [tuple(str(keys, "utf-8", "replace").split()) if keys else () for keys in values]

    @cached_property
    def message_ids(self) -> list[str]:
        """The producers' unique ids, or the offset ids where there are none."""
        return [message.message_id for message in self]

    @property
    def _raw_properties(self) -> list[bytes]:
        return [self._raw[place.properties_at : place.end] for place in self._places]

    # ---- as a sequence of messages

    def offset_at(self, index: int) -> int:
        """One of `offsets`, whatever has become of that list."""
        return self._places[index].queue_offset

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> MessageBatch: ...
    def __getitem__(self, index: int | slice) -> ReceivedMessage | MessageBatch:
        if isinstance(index, slice):
            return MessageBatch(self._reader, self._raw, self._places[index], self.queue)
        place = self._places[index]
        return self._reader.message_at(self._raw, place.at, place.end, self.queue)

    def __repr__(self) -> str:
        first = f" from offset {self._places[0].queue_offset}" if self._places else ""
        return f"<MessageBatch of {self.queue}: {len(self)} messages{first}>"
