"""Messages as users write and receive them. The bytes of a stored one are in `message_record`.

Java: common/message/Message.java, common/message/MessageExt.java, common/message/MessageQueue.java
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from msgspec import Struct

from rocketlet.common import message_properties as names

Value = TypeVar("Value")


class Serializer(Protocol[Value]):
    """How values of one kind become bodies, and bodies values: JSON by a schema, MessagePack, Avro, Protobuf."""

    def dumps(self, value: Value, /) -> bytes: ...

    def loads(self, body: bytes, /) -> Value: ...


@dataclass(slots=True)
class Message:
    """A message to send. `properties` are the user's own; tags, keys, delay and the like have fields here."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    delay_level: int = 0
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    wait_store: bool = True
    sharding_key: str | None = None
    reply_to: str | None = None
    deliver_at: float | None = None
    """When it is to be delivered, in seconds since 1970 (`datetime.timestamp()`, `time.time() + 90`); of RocketMQ 5."""

    @classmethod
    def json(cls, topic: str, value: Any, **named: Any) -> Self:
        """A message whose body is a value as JSON; `named` are its other fields. Raises TypeError for what has no JSON.

        For another format: `Message.of`.
        """
        return cls(topic, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), **named)

    @classmethod
    def of(cls, topic: str, value: Value, serializer: Serializer[Value], **named: Any) -> Self:
        """A message whose body is a value as the serialiser writes it. Raises what that raises.

        message = Message.of("orders", Order(7, "tea"), orders)     # and received.value(orders) at the other end
        """
        return cls(topic, serializer.dumps(value), **named)

    def all_properties(self) -> dict[str, str]:
        """The user's properties and those the fields stand for, as they travel."""
        properties = dict(self.properties)
        if self.keys:
            properties[names.KEYS] = self.keys if isinstance(self.keys, str) else names.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            properties[names.TAGS] = self.tags
        if self.delay_level:
            properties[names.DELAY] = str(self.delay_level)
        if self.deliver_at is not None:
            properties[names.TIMER_DELIVER_MS] = str(round(self.deliver_at * 1000))
        if self.sharding_key:
            properties[names.SHARDING_KEY] = self.sharding_key
        if self.reply_to:
            properties[names.REPLY_TO_CLIENT] = self.reply_to
        properties[names.WAIT] = "true" if self.wait_store else "false"
        return properties


class MessageQueue(Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """One queue of a topic on one broker; ordered as Java orders them, for allocation depends on it.

    A msgspec struct because it is a key wherever sends or offsets are collected: its hash takes 0.02 µs, where that of
    a dataclass takes 0.2.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


class _Pulled:
    """The slots of a message that are no fields of it: what its other fields are still to be decoded from, if so, and
    what they were decoded from, whatever has become of them since."""

    __slots__ = ("_record", "_undecoded")
    _undecoded: Any
    _record: Any

    def __getstate__(self) -> object:
        state = object.__getstate__(self)
        assert isinstance(state, tuple)
        state[1].pop("_record", None)  # a copy is its owner's: no client takes it back
        return state


@dataclass(slots=True)
class ReceivedMessage(_Pulled):
    """A message as consumers get it. `message_id` is the producer's unique id, or the offset id where there is none.

    `body` is inflated already; `sys_flag` still says how it was stored. Hosts are text, `10.0.0.5:10911`.
    """

    topic: str
    body: bytes
    queue: MessageQueue
    queue_offset: int
    log_offset: int
    message_id: str
    offset_message_id: str
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    tags: str | None
    keys: tuple[str, ...]
    flag: int
    sys_flag: int
    properties: dict[str, str]
    prepared_transaction_offset: int
    store_size: int = 0
    """Bytes of the whole record at the broker; 0 where the message came without one."""

    def json(self) -> Any:
        """The value whose JSON the body is. Raises ValueError where it is none."""
        return json.loads(self.body)

    def value(self, serializer: Serializer[Value]) -> Value:
        """The value whose bytes the body is. Raises what the serialiser raises."""
        return serializer.loads(self.body)

    @property
    def retry_topic(self) -> str | None:
        """The topic to which a redelivered message was sent originally."""
        return self.properties.get(names.RETRY_TOPIC)
