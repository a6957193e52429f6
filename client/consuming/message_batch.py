"""What one pull brought, by columns: the bodies at once, everything else when it is first asked for.

    for batch in consumer.batches():
        table.insert(zip(batch.offsets, batch.bodies))

A message costs 1 µs to find and to cut out, where a `ReceivedMessage` costs 3; so this is for those who handle many
messages alike. `batch[3]` and `for message in batch` still make whole messages, and `batch[3:]` is a batch.

Java: none; a pull there is decoded message by message (client/impl/consumer/PullAPIWrapper.java#processPullResult)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, overload

from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_record import Place

_TAGS, _KEYS = names.TAGS.encode(), names.KEYS.encode()


class Reader(Protocol):
    """What makes whole messages of records."""

    def at(self, raw: bytes, at: int, end: int, queue: MessageQueue) -> ReceivedMessage:
        """The message of the record there."""

    def inflated(self, body: bytes, sys_flag: int) -> bytes:
        """A body as it was before its producer compressed it. Raises CannotInflate."""


class MessageBatch(Sequence[ReceivedMessage]):
    """Messages of one queue, in the order of their offsets. Columns are lists, of one value for each message."""

    def __init__(self, reader: Reader, raw: bytes, places: Sequence[Place], queue: MessageQueue) -> None:
        """`raw` holds the records. Raises CannotInflate."""
        self._reader = reader
        self._raw = raw
        self._places = places
        self.queue = queue
        self.bodies: list[bytes] = [raw[place.body_at : place.body_end] for place in places]
        """Inflated where they were sent compressed."""
        for number, place in enumerate(places):
            if place.sys_flag & flags.COMPRESSED:
                self.bodies[number] = reader.inflated(self.bodies[number], place.sys_flag)

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
        return self._reader.at(self._raw, place.at, place.end, self.queue)

    def __repr__(self) -> str:
        first = f" from offset {self._places[0].queue_offset}" if self._places else ""
        return f"<MessageBatch of {self.queue}: {len(self)} messages{first}>"
