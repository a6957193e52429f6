"""Messages of one topic that came one by one and are stored together: queues, times, properties and keys are columns.

What is written is byte for byte what `put` of each writes, and tests hold it to that; ten numbers of the heads are
filled in by numpy, and the records are joined once. A run of a batch (`store/message_run.py`) is of one queue and one
moment, and stored wholly or not at all; this one is of any queues, and each of its messages could have come alone.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import HEAD_SIZE, Buffer, head_dtype
from rocketlet.store.message_run import Shared, crc_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class ColumnRun:
    """`shared` is what the first message has; queue ids and born timestamps have columns of their own. `tails` are the
    rows of what follows the body in each record: the field of the topic, and the properties after their length, none of
    whose bytes is zero. `key_hashes` has a row of hashes for the index."""

    shared: Shared
    flag: int
    queue_ids: NDArray[Any]
    born_timestamps: NDArray[Any]
    bodies: Sequence[Buffer]
    tails: NDArray[Any]
    properties_size: int
    tags_codes: NDArray[Any]
    key_hashes: NDArray[Any]

    def sizes(self) -> NDArray[Any]:
        """Of each record."""
        import numpy

        sizes = numpy.fromiter(map(len, self.bodies), numpy.int64, len(self.bodies))
        sizes += HEAD_SIZE + self.tails.shape[1]
        return sizes

    def encode(
        self, sizes: NDArray[Any], log_offsets: NDArray[Any], queue_offsets: NDArray[Any], timestamp: int
    ) -> bytes:
        """The records."""
        import numpy

        count, tail_size = self.tails.shape
        heads = numpy.frombuffer(bytearray(self.shared.head(timestamp, flag=self.flag) * count), head_dtype())
        heads["size"], heads["crc"], heads["log_offset"] = sizes, crc_column(self.bodies), log_offsets
        heads["queue_id"], heads["queue_offset"] = self.queue_ids, queue_offsets
        heads["born_timestamp"] = self.born_timestamps
        heads["body_size"] = sizes - (HEAD_SIZE + tail_size)
        parts = zip(
            rows_of(heads.tobytes(), HEAD_SIZE), self.bodies, rows_of(self.tails.tobytes(), tail_size), strict=True
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
