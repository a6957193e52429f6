"""The key index as a table that can be searched without a broker: Parquet, cut into buckets by the hash of the key and
sorted inside, so that a search opens one folder and reads one row group or two.

    <lookup>/bucket=<n>/part-*.parquet   the columns of LOOKUP_SCHEMA
    <lookup>/_lookup.json                number of buckets, and the stretch of the log that was read

Unlike a broker's index it knows the key itself, so there are no collisions, and it needs no topic to ask.

Java: store/index/IndexService.java#queryOffset
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rocketlet.common.errors import RocketletError
from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message_record import Fault, check
from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, Split, find_commit_log, log_folders, read_split
from rocketlet.spark_jobs.files import list_folder, read_file, read_range, write_text
from rocketlet.spark_jobs.progress import progress
from rocketlet.store.layout.file_names import parse_offset

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LOOKUP_SCHEMA = (
    "bucket int, key_hash int, key string, is_unique boolean, topic string, queue_id int, queue_offset long, "
    "log_offset long, size int, store_time timestamp"
)
_INFO_FILE = "_lookup.json"
_ROW_GROUP = 64 << 10


class NoLookup(RocketletError):
    """There is no lookup index at the path; make one with `python -m rocketlet.spark_jobs index --lookup`."""


@dataclass(slots=True, frozen=True)
class LookupInfo:
    """What a lookup index covers."""

    buckets: int
    store: str
    log_begin: int
    log_end: int


@dataclass(slots=True, frozen=True)
class Hit:
    """One message with a key. `store_time` is in ms."""

    key: str
    is_unique: bool
    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    store_time: int


def write_lookup(
    session: SparkSession,
    store: str,
    out: str,
    *,
    buckets: int = 32,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
) -> LookupInfo:
    """Read the whole log once and write the table; what stands at `out` is replaced. Raises StoreNotFound."""
    log = find_commit_log(store)
    splits = log.splits(max(-(-log.bytes // partitions), 1) if partitions else split_size)
    numbers = session.range(0, len(splits), 1, max(1, min(partitions or len(splits), len(splits))))
    rows = numbers.mapInArrow(_reader(splits, buckets), LOOKUP_SCHEMA)
    with progress(session, "writing the lookup index", log.bytes):
        sorted_rows = rows.repartition(min(buckets, 200), "bucket")
        sorted_rows = sorted_rows.sortWithinPartitions("bucket", "key_hash", "key", "log_offset")
        writer = sorted_rows.write.mode("overwrite").partitionBy("bucket")
        writer.option("parquet.block.size", 4 << 20).option("compression", "zstd").parquet(out)
    lookup_info = LookupInfo(buckets, store, log.begin_offset, log.end_offset)
    write_text(f"{out}/{_INFO_FILE}", json.dumps(asdict(lookup_info)))
    return lookup_info


def _reader(splits: list[Split], buckets: int) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(splits[number], buckets)

    return read


def rows_of(split: Split, buckets: int) -> Iterator[pa.RecordBatch]:
    """The keys of a split's messages; rollbacks have none, as in a broker's index."""
    import numpy as np
    import pyarrow as pa

    from rocketlet.common.message_flags import ROLLBACK, TRANSACTION_MASK
    from rocketlet.spark_jobs.index_segments import key_table
    from rocketlet.spark_jobs.message_columns import MessageBatch
    from rocketlet.spark_jobs.segment_rows import texts

    data, result = read_split(split)
    heads = result.heads_in(data)
    batch = MessageBatch(data, heads.where((heads.sys_flag & TRANSACTION_MASK) != ROLLBACK))
    if not len(batch):
        return
    keys = key_table(batch)
    row, heads = keys.row, batch.heads
    topics = texts(batch.topics.dictionary).take(batch.topics.indices)
    table = pa.table(
        {
            "bucket": pa.array((keys.key_hash.astype(np.int64) % buckets).astype(np.int32)),
            "key_hash": pa.array(keys.key_hash),
            "key": texts(keys.key),
            "is_unique": pa.array(keys.is_unique),
            "topic": topics.take(pa.array(row)),
            "queue_id": pa.array(heads.queue_id[row]),
            "queue_offset": pa.array(heads.queue_offset[row]),
            "log_offset": pa.array(heads.log_offset[row]),
            "size": pa.array(heads.size[row]),
            "store_time": pa.array(heads.store_timestamp[row] * 1000).cast(pa.timestamp("us", "UTC")),
        }
    )
    yield from table.to_batches(_ROW_GROUP)


def read_about(lookup: str) -> LookupInfo:
    """Raises NoLookup."""
    text = read_file(f"{lookup}/{_INFO_FILE}")
    if text is None:
        raise NoLookup(
            f"no lookup index at {lookup}; make one with: python -m rocketlet.spark_jobs index --lookup {lookup}"
        )
    return LookupInfo(**json.loads(text))


def find(
    lookup: str, key: str, *, topic: str | None = None, begin: int | None = None, end: int | None = None
) -> list[Hit]:
    """The messages with a key, stored in [begin, end] ms, oldest first; without Spark. Raises NoLookup."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    lookup_info = read_about(lookup)
    key_hash = string_hash(key)
    folder = f"{lookup}/bucket={key_hash % lookup_info.buckets}"
    files = [f"{folder}/{entry.name}" for entry in list_folder(folder) if entry.name.endswith(".parquet")]
    if not files:
        return []
    condition = (ds.field("key_hash") == key_hash) & (ds.field("key") == key)
    if topic is not None:
        condition &= ds.field("topic") == topic
    moment = pa.timestamp("us", "UTC")
    if begin is not None:
        condition &= ds.field("store_time") >= pa.scalar(begin * 1000, moment)
    if end is not None:
        condition &= ds.field("store_time") <= pa.scalar(end * 1000 + 999, moment)
    rows = ds.dataset(files, format="parquet").to_table(filter=condition).to_pylist()
    hits = [
        Hit(
            row["key"], row["is_unique"], row["topic"], row["queue_id"], row["queue_offset"], row["log_offset"],
            row["size"], round(row["store_time"].timestamp() * 1000),
        )
        for row in rows
    ]  # fmt: skip
    return sorted(hits, key=lambda hit: hit.log_offset)


def read_record(store: str, hit: Hit) -> bytes | None:
    """The message of a hit from the log itself; None where the log does not have it any more."""
    for folder in log_folders(store):
        for entry in list_folder(folder):
            base = parse_offset(entry.name)
            if base is not None and base <= hit.log_offset < base + entry.size:
                raw = bytes(read_range(f"{folder}/{entry.name}", hit.log_offset - base, hit.size))
                size = check(raw, 0, len(raw), False, hit.log_offset)
                return None if isinstance(size, Fault) else raw[:size]
    return None
