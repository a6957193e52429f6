"""What a broker's dispatch would write for the records of one split, and how the splits' parts become files.

A split yields packed pieces: queue units by (topic, queue, file) and index entries in log order. Numbers of index
entries follow from the counts of all splits before, so index files can be made in parallel; so can the files of a queue
without gaps. A queue with gaps or offsets that go back needs its units in the order of the log, and is made whole, by
the rules of our own recovery: a later record wins, what is missing is marked LOST.

Dispatch as in 4.9: units for records of transaction type none and commit; index entries for all but rollbacks, unique
key first, then the words of KEYS; on the delay topic the tags code is the time of delivery.

Java: store/DefaultMessageStore.java (CommitLogDispatcherBuildConsumeQueue, ...BuildIndex), store/index/IndexFile.java
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rocketlet.common import message_flags as flags
from rocketlet.common.java_hashes import hashes_between
from rocketlet.common.java_numbers import string_hash, utf8_hash
from rocketlet.common.topic import SCHEDULE_TOPIC, is_legal_name
from rocketlet.spark_jobs.message_columns import MessageBatch
from rocketlet.spark_jobs.segment_rows import Array
from rocketlet.store.layout.consume_queue_entry import LOST, PRE_BLANK, entry_dtype
from rocketlet.store.layout.index_layout import ENTRY_SIZE as INDEX_ENTRY_SIZE
from rocketlet.store.layout.index_layout import HEADER, HEADER_SIZE, SLOT_SIZE, IndexGeometry, link, seconds_since
from rocketlet.store.layout.index_layout import entry_dtype as index_entry_dtype
from rocketlet.store.layout.queue_rules import (
    DEFAULT_DELAY_LEVELS,
    LOST_MARK,
    delivery_time,
    parse_delay_levels,
)

UNIT = np.dtype([("queue_offset", "<i8"), ("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
INDEX_ITEM = np.dtype([("hash", "<i4"), ("log_offset", "<i8"), ("timestamp", "<i8")])


@dataclass(slots=True, frozen=True)
class Rules:
    """The broker settings that determine the bytes."""

    units_per_file: int = 300_000
    geometry: IndexGeometry = field(default_factory=IndexGeometry)
    delays: tuple[int, ...] = parse_delay_levels(DEFAULT_DELAY_LEVELS)


@dataclass(slots=True)
class QueueSpan:
    """The part of one queue in one split. `is_even`: offsets follow one another from `first` on."""

    topic: str
    queue_id: int
    first: int
    count: int
    is_even: bool


@dataclass(slots=True)
class SplitIndex:
    """The output of dispatch for one split."""

    units: list[tuple[QueueSpan, int, Array]] = field(default_factory=list)  # (queue, file number, UNIT array)
    items: Array = field(default_factory=lambda: np.empty(0, INDEX_ITEM))
    spans: list[QueueSpan] = field(default_factory=list)
    strange_topics: set[str] = field(default_factory=set)
    inner_batches: set[str] = field(default_factory=set)


def index_split(batch: MessageBatch, lost: Array, rules: Rules) -> SplitIndex:
    """`lost` says which records can be read but not trusted: they keep their place in the queue, marked LOST."""
    result = SplitIndex()
    heads = batch.heads
    lost = lost | (heads.prepared_offset == LOST_MARK)
    indexed = np.flatnonzero(((heads.sys_flag & flags.TRANSACTION_MASK) != flags.ROLLBACK) & ~lost)
    result.items = index_items(batch, indexed)
    kind = heads.sys_flag & flags.TRANSACTION_MASK
    queued = (kind == flags.NOT_TRANSACTION) | (kind == flags.COMMIT)
    is_inner = (heads.sys_flag & flags.INNER_BATCH) != 0
    if is_inner.any():
        names = batch.topics.take(pa.array(np.flatnonzero(is_inner & queued))).unique().to_pylist()
        result.inner_batches = {name.decode("utf-8", "replace") for name in names}
        queued &= ~is_inner
    _add_units(result, batch, np.flatnonzero(queued), lost, rules)
    return result


def _add_units(result: SplitIndex, batch: MessageBatch, rows: Array, lost: Array, rules: Rules) -> None:
    """The units of the chosen records, cut by queue and file, in the order of the log."""
    if not len(rows):
        return
    heads = batch.heads
    units = np.empty(len(rows), UNIT)
    units["queue_offset"] = heads.queue_offset[rows]
    units["log_offset"] = heads.log_offset[rows]
    units["size"] = heads.size[rows]
    units["tags_code"] = np.where(lost, LOST, _codes(batch, rules))[rows]
    topic = batch.topics.indices.to_numpy()[rows].astype(np.int64)
    queue = topic << 32 | heads.queue_id[rows].astype(np.int64) & 0xFFFFFFFF
    order = np.argsort(queue, kind="stable")
    units, queue = units[order], queue[order]
    for begin, end in _runs(queue):
        name = batch.topics.dictionary[int(queue[begin] >> 32)].as_py().decode("utf-8", "replace")
        queue_id = int(np.int64(queue[begin] & 0xFFFFFFFF).astype(np.int32))
        run = units[begin:end]
        if not is_legal_name(name) or queue_id < 0 or (run["queue_offset"] < 0).any():
            result.strange_topics.add(name)
            continue
        is_even = bool((np.diff(run["queue_offset"]) == 1).all())
        span = QueueSpan(name, queue_id, int(run["queue_offset"][0]), len(run), is_even)
        result.spans.append(span)
        files = run["queue_offset"] // rules.units_per_file
        for first, last in _runs(files):
            result.units.append((span, int(files[first]), run[first:last]))


def _runs(values: Array) -> Iterator[tuple[int, int]]:
    """Borders of the stretches of equal values."""
    borders = np.flatnonzero(np.diff(values)) + 1
    begins = [0, *borders.tolist()]
    return zip(begins, [*borders.tolist(), len(values)], strict=True)


def _codes(batch: MessageBatch, rules: Rules) -> Array:
    """The tags code of every record; on the delay topic, the time of delivery."""
    codes: Array = batch.tags_codes.to_numpy().copy()
    schedule = batch.topics.dictionary.index(SCHEDULE_TOPIC.encode()).as_py()
    if schedule >= 0:
        delays = batch.properties.column(b"DELAY")
        for row in np.flatnonzero(batch.topics.indices.to_numpy() == schedule).tolist():
            due = delivery_time(int(batch.heads.store_timestamp[row]), delays[row].as_py(), rules.delays)
            if due is not None:
                codes[row] = due
    return codes


def index_items(batch: MessageBatch, chosen: Array) -> Array:
    """The index entries of the chosen records, in order: hash of `topic#key`, log offset, store timestamp."""
    all_keys = key_table(batch)
    number = np.full(len(batch), -1, np.int64)
    number[chosen] = 1
    key_rows = np.flatnonzero(number[all_keys.row] > 0)
    row = all_keys.row[key_rows]
    items = np.empty(len(key_rows), INDEX_ITEM)
    items["hash"] = all_keys.hash[key_rows]
    items["log_offset"] = batch.heads.log_offset[row]
    items["timestamp"] = batch.heads.store_timestamp[row]
    return items


@dataclass(slots=True)
class KeyTable:
    """All keys of a batch in index order: unique key first, then the words of KEYS, record by record."""

    row: Array
    key: pa.BinaryArray
    is_unique: Array
    hash: Array  # as index entries have it, never negative
    key_hash: Array  # of the key alone, signed


def key_table(batch: MessageBatch) -> KeyTable:
    unique = batch.properties.column(b"UNIQ_KEY")
    has_unique = unique.is_valid().to_numpy(zero_copy_only=False)
    words = batch.keys.cast(pa.list_(pa.binary()))
    borders = words.offsets.to_numpy().astype(np.int64)
    counts = np.diff(borders)
    starts = np.concatenate(([0], np.cumsum(counts + has_unique)))
    row = np.repeat(np.arange(len(batch)), counts + has_unique)
    unique_rows = np.flatnonzero(has_unique)
    word_rows = np.repeat(np.arange(len(batch)), counts)
    word_places = (
        starts[word_rows] + has_unique[word_rows] + np.arange(len(word_rows)) - (borders[:-1] - borders[0])[word_rows]
    )
    source = np.empty(len(row), np.int64)
    source[starts[unique_rows]] = np.arange(len(unique_rows))
    source[word_places] = len(unique_rows) + np.arange(len(word_rows))
    key = pa.concat_arrays([unique.drop_null(), words.flatten()]).take(pa.array(source))
    is_unique = source < len(unique_rows)
    key_hash, units = _column_hashes(key)
    hashes = _prefixed(batch, row, key_hash, units)
    return KeyTable(row, key, is_unique, hashes, key_hash.view(np.int32))


def _column_hashes(texts: pa.BinaryArray) -> tuple[Array, Array]:
    """(hash of each text as uint32, its length in UTF-16 units)."""
    if not len(texts):
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    units = np.diff(offsets)
    part = data[offsets[0] : offsets[-1]]
    foreign = np.flatnonzero(part >= 0x80)
    if not len(foreign):
        return hashes_between(part, offsets - offsets[0]), units
    # Blank the texts that are not ASCII out, hash the others together and these one by one.
    numbers = np.unique(np.searchsorted(offsets - offsets[0], foreign, "right") - 1)
    hashes = hashes_between(np.where(part < 0x80, part, 0).astype(np.uint8), offsets - offsets[0])
    for number in numbers.tolist():
        raw = texts[number].as_py()
        hashes[number] = utf8_hash(raw) & 0xFFFFFFFF
        units[number] = len(raw.decode("utf-8", "replace").encode("utf-16-le")) // 2
    return hashes, units


def _prefixed(batch: MessageBatch, row: Array, key_hash: Array, units: Array) -> Array:
    """Hashes of `topic#key` from those of the keys: h(a + b) = h(a) * 31^|b| + h(b), modulo 2^32."""
    if not len(row):
        return np.empty(0, np.int32)
    names = [name.decode("utf-8", "replace") for name in batch.topics.dictionary.to_pylist()]
    prefixes = np.array([string_hash(f"{name}#") & 0xFFFFFFFF for name in names], np.uint32)
    powers = np.full(int(units.max()) + 1, 31, np.uint32)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint32)
    hashes = prefixes[batch.topics.indices.to_numpy()[row]] * powers[units] + key_hash
    signed = hashes.view(np.int32)
    # The absolute value; the one number that has none becomes 0.
    return np.where(signed == -0x80000000, 0, np.abs(signed)).astype(np.int32)


# ---- from pieces to files


def even_units(units: Array, number: int, rules: Rules) -> tuple[int, bytes]:
    """(place of the first entry in its file, the entries) of a queue whose offsets follow one another."""
    if not len(units):
        return 0, b""
    units = units[np.argsort(units["queue_offset"], kind="stable")]
    return int(units["queue_offset"][0]) - number * rules.units_per_file, _packed(units)


def even_queue_file(units: Array, number: int, rules: Rules, *, is_first: bool) -> bytes:
    """A file of such a queue; pre-blank before the first unit of the queue's first file."""
    place, entries = even_units(units, number, rules)
    assert is_first or place == 0, "an even queue fills its files from the start"
    return PRE_BLANK * place + entries


def _packed(units: Array) -> bytes:
    entries = np.empty(len(units), entry_dtype())
    for name in ("log_offset", "size", "tags_code"):
        entries[name] = units[name]
    return entries.tobytes()


@dataclass(slots=True)
class IndexFile:
    """One index file, made as its entries come: it holds no more of them than it is given at once, and the slots."""

    geometry: IndexGeometry
    begin_timestamp: int = 0
    end_timestamp: int = 0

    def pieces(self, parts: Iterable[Array], *, follows: bool) -> Iterator[tuple[int, Any]]:
        """(place, bytes) of the file of these entries, which are in order. Where it `follows` another file the first of
        them is that one's last, from whose time the first entry counts."""
        heads = np.zeros(self.geometry.slots, ">i4")
        begin_log_offset = end_log_offset = count = slots_used = end_before = 0
        is_before = follows
        for items in parts:
            if is_before and len(items):
                end_before, items, is_before = int(items["timestamp"][0]), items[1:], False
            if not len(items):
                continue
            if not count:
                begin_log_offset, self.begin_timestamp = int(items["log_offset"][0]), int(items["timestamp"][0])
            previous, used = link(heads, items["hash"], count + 1)
            entries = np.empty(len(items), index_entry_dtype())
            entries["hash"], entries["log_offset"], entries["previous"] = items["hash"], items["log_offset"], previous
            first_base = None if count else end_before
            entries["seconds"] = seconds_since(items["timestamp"], self.begin_timestamp, first_base)
            yield self.geometry.entries_at + (count + 1) * INDEX_ENTRY_SIZE, entries.tobytes()
            count, slots_used = count + len(items), slots_used + used
            end_log_offset, self.end_timestamp = int(items["log_offset"][-1]), int(items["timestamp"][-1])
        times = self.begin_timestamp, self.end_timestamp
        yield 0, HEADER.pack(*times, begin_log_offset, end_log_offset, slots_used, count + 1)
        yield from _slot_pieces(heads)


def _slot_pieces(heads: Array) -> Iterator[tuple[int, bytes]]:
    """The slots without their empty pages, so that the file stays sparse."""
    page = 1024  # slots
    used: Array = np.add.reduceat(heads != 0, np.arange(0, len(heads), page))
    for begin, end in _runs(used > 0):
        if used[begin]:
            yield HEADER_SIZE + begin * page * SLOT_SIZE, heads[begin * page : end * page].tobytes()
