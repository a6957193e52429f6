"""A run of messages of the same length and shape: it is handled as columns of a table, and only the CRC of the body is
computed per message.

Java: store/CommitLog.java (putMessages)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketlet.common.alike_batch import AlikeBatch
from rocketlet.common.java_hashes import index_hashes
from rocketlet.common.message_record import HEAD_SIZE, head_dtype
from rocketlet.store.message import Put
from rocketlet.store.message_run import Shared, crc_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class AlikeRun:
    """A batch as received, and the properties that follow each message's own (`more`, with their separators)."""

    shared: Shared
    batch: AlikeBatch
    more: bytes
    tags_codes: int

    @property
    def longest_properties(self) -> int:
        return len(self.batch.properties) + len(self.more)

    def has_zero_properties(self) -> bool:
        return 0 in self.more or not bool(self.batch.table[:, self.batch.properties_at :].all())

    def puts(self) -> list[Put]:
        batch, puts = self.batch, []
        for at in range(0, len(batch.raw), batch.size):
            row = batch.raw[at : at + batch.size]
            keys = [row[begin:end] for begin, end in batch.key_places]
            body = row[batch.body_at : batch.body_at + batch.body_size]
            puts.append(
                self.shared.put(body, row[batch.properties_at :] + self.more, self.tags_codes, keys, batch.flag)
            )
        return puts

    def sizes(self, topic_field: bytes) -> NDArray[Any]:
        import numpy

        size = HEAD_SIZE + self.batch.body_size + len(topic_field) + 2 + self.longest_properties
        return numpy.full(len(self.batch.table), size)

    def encode(
        self, topic_field: bytes, sizes: NDArray[Any], log_offsets: NDArray[Any], queue_offset: int, timestamp: int
    ) -> bytes | bytearray:
        import numpy

        batch = self.batch
        count, size, body_size = len(batch.table), int(sizes[0]), batch.body_size
        separator = topic_field + self.longest_properties.to_bytes(2, "big")
        head = self.shared.head(timestamp, size, batch.flag, body_size)
        record = b"%b%b%b%b%b" % (head, bytes(body_size), separator, batch.properties, self.more)
        body_end = batch.body_at + body_size
        records = bytearray(record * count)
        table = numpy.frombuffer(records, numpy.uint8).reshape(count, size)
        table[:, HEAD_SIZE : HEAD_SIZE + body_size] = batch.table[:, batch.body_at : body_end]
        properties_at = HEAD_SIZE + body_size + len(separator)
        for begin, end in batch.key_places:
            place = properties_at + begin - batch.properties_at
            table[:, place : place + end - begin] = batch.table[:, begin:end]
        heads = numpy.frombuffer(records, head_dtype(size))
        heads["crc"] = crc_column(batch.bodies())
        heads["queue_offset"] = numpy.arange(queue_offset, queue_offset + count)
        heads["log_offset"] = log_offsets
        return records

    def key_hashes(self, prefix: bytes) -> tuple[NDArray[Any], list[int] | int]:
        places = [slice(*place) for place in self.batch.key_places]
        return index_hashes(prefix, self.batch.table, places).ravel(), len(places)
