"""The columns of a message row: their Spark types and how each is made from the records of a batch.

A reader gets a schema and makes just those columns: nothing else is decoded. Bodies are cut out last
and properties once, however many columns come from them.

`crc_state` is `good`, `bad body` (BODYCRC, of all records) or `bad record` (`__CRC32#`, of records that carry one).
`compression` says how the body of the row is compressed: null where it is plain, or was inflated on request.

Java: common/message/MessageExt.java
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketlet.common import message_flags as flags
from rocketlet.common.host import host_text
from rocketlet.common.java_numbers import utf8_hash
from rocketlet.common.message_properties import CRC32, INNER_NUM, decode_bytes
from rocketlet.common.message_record import (
    BatchItem,
    Record,
    RecordError,
    decode,
    decode_batch,
    encode,
    has_good_property_crc,
)
from rocketlet.spark_jobs.segment_rows import (
    Array,
    Heads,
    Properties,
    bad_bodies,
    cut_out,
    heads_at,
    properties_of,
    texts,
    topics_of,
)

_COMPRESSIONS = ["zlib", "lz4", "zstd", "zlib", "unknown", "unknown", "unknown", "unknown"]
_TRANSACTIONS = ["none", "prepared", "commit", "rollback"]


@dataclass(slots=True, frozen=True)
class Column:
    """A column's name and Spark type, how to make it, and the type that Arrow gives it."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    make: Callable[[MessageBatch], pa.Array]


class MessageBatch:
    """Some records of one buffer, from which columns are made on demand."""

    def __init__(self, data: bytes | bytearray | memoryview, heads: Heads, *, inflate: bool = False) -> None:
        self.data = memoryview(data)
        self.heads = heads
        self.inflate = inflate

    def __len__(self) -> int:
        return len(self.heads)

    def where(self, chosen: Array) -> MessageBatch:
        return MessageBatch(self.data, self.heads.where(chosen), inflate=self.inflate)

    @cached_property
    def topics(self) -> pa.DictionaryArray:
        return topics_of(self.data, self.heads)

    @cached_property
    def properties(self) -> Properties:
        return properties_of(self.data, self.heads)

    def bad_property_crcs(self) -> list[int]:
        """The rows of records that carry `__CRC32#` and do not match it."""
        heads, bad = self.heads, []
        for row in np.flatnonzero(self.properties.column(CRC32.encode()).is_valid().to_numpy(zero_copy_only=False)):
            begin = int(heads.place[row])
            if has_good_property_crc(self.data[begin : begin + int(heads.size[row])]) is False:
                bad.append(int(row))
        return bad

    @cached_property
    def crc_states(self) -> pa.StringArray:
        states = np.zeros(len(self), np.int8)
        states[bad_bodies(self.data, self.heads)] = 1
        states[self.bad_property_crcs()] = 2
        return pa.DictionaryArray.from_arrays(states, ["good", "bad body", "bad record"]).cast(pa.string())

    @cached_property
    def _bodies(self) -> tuple[pa.BinaryArray, Array]:
        """The bodies, and which of them are still compressed."""
        heads = self.heads
        bodies = cut_out(self.data, heads.body_at, heads.body_at + heads.body_size)
        compressed = (heads.sys_flag & flags.COMPRESSED) != 0
        if not self.inflate or not compressed.any():
            return bodies, compressed
        plain = bodies.to_pylist()
        for row in np.flatnonzero(compressed):
            inflated = inflate_body(plain[row], int(heads.sys_flag[row]))
            if inflated is not None:
                plain[row], compressed[row] = inflated, False
        return pa.array(plain, pa.binary()), compressed

    @property
    def bodies(self) -> pa.BinaryArray:
        return self._bodies[0]

    @property
    def compressions(self) -> pa.StringArray:
        kinds = (self.heads.sys_flag & flags.COMPRESSION_MASK) >> 8
        names = pa.DictionaryArray.from_arrays(pa.array(kinds, mask=~self._bodies[1]), _COMPRESSIONS)
        return names.cast(pa.string())

    @property
    def keys(self) -> pa.ListArray:
        """The words of KEYS; an empty list where there are none."""
        words = pc.split_pattern(pc.fill_null(texts(self.properties.column(b"KEYS")), ""), " ")
        flat = words.flatten()
        full = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
        if full.all():
            return words
        ends = np.concatenate(([0], np.cumsum(full)))[words.offsets.to_numpy() - words.offsets[0].as_py()]
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), flat.filter(pa.array(full)))

    @property
    def tags_codes(self) -> pa.Array:
        tags = self.properties.column(b"TAGS").dictionary_encode()
        codes = pa.array([utf8_hash(tag) for tag in tags.dictionary.to_pylist()], pa.int64())
        return pc.fill_null(codes.take(tags.indices), 0)

    def hosts(self, at: Array, v6_flag: int) -> pa.StringArray:
        """Hosts as text; each distinct one is formatted once."""
        size = np.where(self.heads.sys_flag & v6_flag, 20, 8)
        packed = cut_out(self.data, at, at + size).dictionary_encode()
        return pa.array([host_text(host) for host in packed.dictionary.to_pylist()], pa.string()).take(packed.indices)

    def unwrapped(self) -> MessageBatch:
        """The batch with each inner batch (5.x) replaced by the messages inside, as records of their own."""
        inner = (self.heads.sys_flag & flags.INNER_BATCH) != 0
        if not inner.any():
            return self
        records = bytearray()
        places = []
        for row in range(len(self)):
            begin = int(self.heads.place[row])
            raw = bytes(self.data[begin : begin + int(self.heads.size[row])])
            for piece in _unwrap(raw) if inner[row] else [raw]:
                places.append(len(records))
                records += piece
        return MessageBatch(records, heads_at(records, places), inflate=self.inflate)


def inflate_body(body: bytes, sys_flag: int) -> bytes | None:
    """The plain body, or None where it cannot be inflated: broken, or of an unknown kind."""
    kind = _COMPRESSIONS[(sys_flag & flags.COMPRESSION_MASK) >> 8]
    try:
        if kind == "zlib":
            return zlib.decompress(body)
        if kind in ("lz4", "zstd"):
            return bytes(pa.CompressedInputStream(pa.BufferReader(body), kind).read())
    except (zlib.error, OSError):
        pass  # the row then keeps the body as it is stored, and says so in its `compression`
    return None


def _unwrap(raw: bytes) -> list[bytes]:
    """The messages of an inner batch as records; the batch itself where its body holds none."""
    batch = decode(raw)
    try:
        items: list[BatchItem] = list(decode_batch(batch.body))
    except RecordError:
        return [raw]
    if str(len(items)) != decode_bytes(batch.properties).get(INNER_NUM, str(len(items))):
        return [raw]
    sys_flag = batch.sys_flag & ~(flags.INNER_BATCH | flags.NEED_UNWRAP)
    return [
        encode(Record(
            batch.topic, batch.queue_id, batch.queue_offset + number, batch.log_offset, item.body, item.properties,
            item.flag, sys_flag, batch.born_timestamp, batch.born_host, batch.store_timestamp, batch.store_host,
            batch.reconsume_times, batch.prepared_offset,
        ))
        for number, item in enumerate(items)
    ]  # fmt: skip


def _timestamps(milliseconds: Array) -> pa.Array:
    return pa.array(milliseconds * 1000).cast(_TIME)


def _words(numbers: Array, names: list[str]) -> pa.StringArray:
    return pa.DictionaryArray.from_arrays(numbers, names).cast(pa.string())


def _plain(name: str) -> Callable[[MessageBatch], pa.Array]:
    return lambda batch: pa.array(getattr(batch.heads, name))


_TIME = pa.timestamp("us", "UTC")
_TEXT = pa.string()
_INT, _LONG = pa.int32(), pa.int64()

# In the order of a row; `load` without a schema gives them all.
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in [
        Column("topic", "string", _TEXT, lambda batch: texts(batch.topics.dictionary).take(batch.topics.indices)),
        Column("queue_id", "int", _INT, _plain("queue_id")),
        Column("queue_offset", "long", _LONG, _plain("queue_offset")),
        Column("log_offset", "long", _LONG, _plain("log_offset")),
        Column("size", "int", _INT, _plain("size")),
        Column("tags", "string", _TEXT, lambda batch: texts(batch.properties.column(b"TAGS"))),
        Column("keys", "array<string>", pa.list_(_TEXT), lambda batch: batch.keys),
        Column("unique_key", "string", _TEXT, lambda batch: texts(batch.properties.column(b"UNIQ_KEY"))),
        Column("store_time", "timestamp", _TIME, lambda batch: _timestamps(batch.heads.store_timestamp)),
        Column("born_time", "timestamp", _TIME, lambda batch: _timestamps(batch.heads.born_timestamp)),
        Column("born_host", "string", _TEXT, lambda batch: batch.hosts(batch.heads.born_host_at, flags.BORN_V6)),
        Column("store_host", "string", _TEXT, lambda batch: batch.hosts(batch.heads.store_host_at, flags.STORE_V6)),
        Column("flag", "int", _INT, _plain("flag")),
        Column("sys_flag", "int", _INT, _plain("sys_flag")),
        Column(
            "transaction", "string", _TEXT,
            lambda batch: _words((batch.heads.sys_flag & flags.TRANSACTION_MASK) >> 2, _TRANSACTIONS),
        ),
        Column("compression", "string", _TEXT, lambda batch: batch.compressions),
        Column("reconsume_times", "int", _INT, _plain("reconsume_times")),
        Column("prepared_offset", "long", _LONG, _plain("prepared_offset")),
        Column("tags_code", "long", _LONG, lambda batch: batch.tags_codes),
        Column("properties", "map<string,string>", pa.map_(_TEXT, _TEXT), lambda batch: batch.properties.maps()),
        Column("body_size", "int", _INT, _plain("body_size")),
        Column("body", "binary", pa.binary(), lambda batch: batch.bodies),
        Column("crc_state", "string", _TEXT, lambda batch: batch.crc_states),
    ]
}  # fmt: skip
