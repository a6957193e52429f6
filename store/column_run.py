"""Messages of one topic that came one by one and are stored together: queues, times, properties and keys are columns.

What is written is byte for byte what `put` of each writes, and tests hold it to that; ten numbers of the heads are
filled in by numpy, and the records are joined once. A run of a batch (`store/message_run.py`) is of one queue and one
moment, and stored wholly or not at all; this one is of any queues, and each of its messages could have come alone.

Java: (none)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from rocketlet.common.columns import bounds_of_equal
from rocketlet.common.message_record import HEAD_SIZE, Buffer, head_dtype
from rocketlet.store.message_run import Shared, crc_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class ColumnRun:
    """`shared` is what the first message has; queue ids and born timestamps have columns of their own. `properties` has
    a row of bytes for each message, none of them zero, `key_hashes` one of hashes for the index."""

    shared: Shared
    flag: int
    queue_ids: NDArray[Any]
    born_timestamps: NDArray[Any]
    bodies: list[Buffer]
    properties: NDArray[Any]
    tags_codes: NDArray[Any]
    key_hashes: NDArray[Any]

    def by_queue(self) -> tuple[NDArray[Any], list[tuple[int, int, int]]]:
        """The messages in the order of their queues, each queue's in their own; and of each queue its id and where its
        messages begin and end."""
        order = self.queue_ids.argsort(kind="stable")
        ids = self.queue_ids[order]
        bounds = bounds_of_equal(ids)
        return order, list(zip(ids[bounds[:-1]].tolist(), bounds[:-1], bounds[1:], strict=True))

    def sizes(self, topic_field: bytes) -> NDArray[Any]:
        """Of each record."""
        import numpy

        sizes = numpy.fromiter(map(len, self.bodies), numpy.int64, len(self.bodies))
        sizes += HEAD_SIZE + len(topic_field) + 2 + self.properties.shape[1]
        return sizes

    def encode(
        self,
        topic_field: bytes,
        sizes: NDArray[Any],
        log_offsets: NDArray[Any],
        queue_offsets: NDArray[Any],
        timestamp: int,
    ) -> bytes:
        """The records."""
        import numpy

        count, properties_size = self.properties.shape
        separator = topic_field + properties_size.to_bytes(2, "big")
        heads = numpy.frombuffer(bytearray(self.shared.head(timestamp, flag=self.flag) * count), head_dtype())
        heads["size"], heads["crc"], heads["log_offset"] = sizes, crc_column(self.bodies), log_offsets
        heads["queue_id"], heads["queue_offset"] = self.queue_ids, queue_offsets
        heads["born_timestamp"] = self.born_timestamps
        heads["body_size"] = sizes - (HEAD_SIZE + len(separator) + properties_size)
        tails = numpy.empty((count, len(separator) + properties_size), numpy.uint8)
        tails[:, : len(separator)] = numpy.frombuffer(separator, numpy.uint8)
        tails[:, len(separator) :] = self.properties
        parts = zip(
            rows_of(heads.tobytes(), HEAD_SIZE), self.bodies, rows_of(tails.tobytes(), tails.shape[1]), strict=True
        )
        return b"".join(chain.from_iterable(parts))


def rows_of(table: bytes, size: int) -> list[bytes]:
    """The rows of a table of bytes."""
    return [table[at : at + size] for at in range(0, len(table), size)]


@dataclass(slots=True)
class AppendedColumns:
    """Where the messages of a column run went: one after another up to `end`. `queues` has of each queue its id, the
    number of messages and their bytes."""

    log_offsets: NDArray[Any]
    sizes: NDArray[Any]
    queue_offsets: NDArray[Any]
    queues: list[tuple[int, int, int]]
    end: int
