"""Many messages that arrived as one batch: what they share is kept once, what differs as lists or columns, so a batch
of a hundred costs a tenth of a hundred messages.

One queue, one sender, one moment, no transaction: then the heads of the records differ in six numbers, which numpy
fills in, and queue and index entries are columns from the beginning. What is written is byte for byte what the same
messages write one by one (`puts`), and tests hold it to that.

`MixedRun` holds messages of any length, `store/alike_run.py` those of one length and shape; `Run` is what the store
asks of either.

Java: store/CommitLog.java (putMessages), common/message/MessageBatch.java
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rocketlet.common.crc import crc32
from rocketlet.common.host import V4_SIZE
from rocketlet.common.java_hashes import hash_column
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.message_record import HEAD, HEAD_SIZE, MAGIC_V1, Buffer, head_dtype
from rocketlet.store.message import Appended, Put

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_TOPIC = 127  # a longer one needs the second version of a record


class Shared(NamedTuple):
    """What all messages of a run share. Both hosts are IPv4; there is no transaction and no delay."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0

    def fits(self) -> bool:
        """Whether a run can share these."""
        return len(self.born_host) == V4_SIZE == len(self.store_host) and len(self.topic.encode()) <= LONGEST_TOPIC

    def head(self, timestamp: int, size: int = 0, flag: int = 0, body_size: int = 0) -> bytes:
        """The head of a record, without what differs."""
        return HEAD.pack(
            size, MAGIC_V1, 0, self.queue_id, flag, 0, 0, self.sys_flag & ~0x30, self.born_timestamp, self.born_host,
            timestamp, self.store_host, self.reconsume_times, 0, body_size,
        )  # fmt: skip

    def put(self, body: bytes, properties: bytes, tags_code: int, keys: list[bytes], flag: int) -> Put:
        """One of the messages."""
        return Put(
            self.topic, self.queue_id, body, properties, tags_code, keys, flag, self.sys_flag, self.born_timestamp,
            self.born_host, self.store_host, self.reconsume_times,
        )  # fmt: skip


class Run(Protocol):
    """Messages to be stored one after another, together or not at all."""

    @property
    def shared(self) -> Shared: ...

    @property
    def tags_codes(self) -> list[int] | int:
        """The code of each message, or one for all."""

    @property
    def longest_properties(self) -> int: ...

    def has_zero_properties(self) -> bool:
        """Whether the properties of any message hold a zero byte."""

    def sizes(self, topic_field: bytes) -> NDArray[Any]:
        """Of each record."""

    def encode(
        self, topic_field: bytes, sizes: NDArray[Any], log_offsets: NDArray[Any], queue_offset: int, timestamp: int
    ) -> bytes | bytearray:
        """The records."""

    def key_hashes(self, prefix: bytes) -> tuple[NDArray[Any], list[int] | int]:
        """Hashes (int64) of all keys, message by message, and how many each message has."""

    def puts(self) -> list[Put]:
        """The same messages one by one."""


@dataclass(slots=True)
class MixedRun:
    """`keys` are those of all messages, one after another; `keys_each` says how many each message has."""

    shared: Shared
    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]
    tags_codes: list[int]
    keys: list[bytes]
    keys_each: list[int]

    def extend(self, more: MixedRun) -> None:
        """Messages that follow."""
        self.bodies += more.bodies
        self.properties += more.properties
        self.flags += more.flags
        self.tags_codes += more.tags_codes
        self.keys += more.keys
        self.keys_each += more.keys_each

    @property
    def longest_properties(self) -> int:
        return max(map(len, self.properties))

    def has_zero_properties(self) -> bool:
        return any(0 in properties for properties in self.properties)

    def puts(self) -> list[Put]:
        keys = iter(self.keys)
        return [
            self.shared.put(body, properties, tags_code, [next(keys) for _ in range(count)], flag)
            for body, properties, tags_code, count, flag in zip(
                self.bodies, self.properties, self.tags_codes, self.keys_each, self.flags, strict=True
            )
        ]

    def sizes(self, topic_field: bytes) -> NDArray[Any]:
        import numpy

        count = len(self.bodies)
        sizes = numpy.fromiter(map(len, self.bodies), numpy.int64, count)
        sizes += numpy.fromiter(map(len, self.properties), numpy.int64, count)
        sizes += HEAD_SIZE + len(topic_field) + 2
        return sizes

    def encode(
        self, topic_field: bytes, sizes: NDArray[Any], log_offsets: NDArray[Any], queue_offset: int, timestamp: int
    ) -> bytes | bytearray:
        import numpy

        count = len(self.bodies)
        heads = numpy.frombuffer(bytearray(self.shared.head(timestamp) * count), head_dtype())
        heads["size"], heads["log_offset"], heads["flag"] = sizes, log_offsets, self.flags
        heads["crc"] = crc_column(self.bodies)
        heads["queue_offset"] = numpy.arange(queue_offset, queue_offset + count)
        heads["body_size"] = numpy.fromiter(map(len, self.bodies), numpy.int64, count)
        packed = heads.tobytes()
        separators = {size: topic_field + size.to_bytes(2, "big") for size in set(map(len, self.properties))}
        parts = zip(
            [packed[at : at + HEAD_SIZE] for at in range(0, len(packed), HEAD_SIZE)],
            self.bodies,
            [separators[len(properties)] for properties in self.properties]
            if len(separators) > 1
            else repeat(*separators.values()),
            self.properties,
            strict=False,
        )
        return b"".join(chain.from_iterable(parts))

    def key_hashes(self, prefix: bytes) -> tuple[NDArray[Any], list[int] | int]:
        import numpy

        hashes = hash_column([prefix + key for key in self.keys])
        return numpy.abs(hashes.astype(numpy.int64)) & INT32_MAX, self.keys_each


def crc_column(bodies: Sequence[Buffer]) -> NDArray[Any]:
    """BODYCRC of each."""
    import numpy

    return numpy.array(list(map(crc32, bodies)), numpy.int64) & INT32_MAX


@dataclass(slots=True)
class AppendedRun:
    """Where the messages of a run went: one after another up to `end`, at adjacent queue offsets."""

    log_offsets: NDArray[Any]
    size: int
    queue_offset: int
    store_timestamp: int
    end: int

    @staticmethod
    def of(each: Sequence[Appended]) -> AppendedRun:
        """The same of messages that were put one by one."""
        import numpy

        first, last = each[0], each[-1]
        log_offsets = numpy.array([appended.log_offset for appended in each])
        size = sum(appended.size for appended in each)
        return AppendedRun(log_offsets, size, first.queue_offset, last.store_timestamp, last.end)
