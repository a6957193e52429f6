"""Records of a stretch of the log as columns: numpy for the numbers, Arrow for the texts, no loop but the chain's.

A stretch is read in two ways. On clean bytes, which is nearly always, a tight loop follows the sizes (0.3 µs a record)
and numpy then checks lengths and offsets of all records at once. Where anything is odd, `log_scan.read_through` reads
the stretch again record by record and names each damage. Both give the same places for clean bytes.

Texts are cut out by Arrow: an array whose offsets are the borders of what we want and of what lies between, over the
bytes of the log themselves, and then every second element of it. No byte is touched in Python.

Java: common/message/MessageDecoder.java
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketlet.common.crc import crc32
from rocketlet.common.message_flags import BORN_V6, STORE_V6
from rocketlet.common.message_record import BLANK, FIXED, HEAD_SIZE, MAGIC_V1, MAGIC_V2, Fault, check
from rocketlet.spark_jobs.ledger_scan import read_ledger
from rocketlet.store.layout.log_scan import Damage, chain, head_dtype, is_blank_of, read_through, resync

Array = NDArray[Any]

_VALUE_END = 2
_NAME_END = 1


@dataclass(slots=True)
class Stretch:
    """What one reader has of a log file. Places are inside `data`; `base` is the log offset of its first byte.

    Records that begin in [start, stop) are this reader's. `end` is where data ends and `file_end` where the file does,
    both possibly beyond the bytes at hand. `at_record` says that a record (or damage) begins at `start`; else the first
    true record from there on is the first. `is_ledger` says that a header of DLedger may stand before each record.
    """

    data: bytes | bytearray | memoryview
    base: int
    start: int
    stop: int
    end: int
    file_end: int
    at_record: bool = True
    is_ledger: bool = False


@dataclass(slots=True)
class Found:
    """The records of a stretch, all places inside its bytes.

    `begin` is where reading began, None where nothing begins in the stretch; `end` is where the next reader's first
    record stands, or the data ends.
    """

    places: Array
    damages: list[Damage] = field(default_factory=list)
    begin: int | None = None
    end: int = 0
    blank: bool = False
    heads: Heads | None = None  # if they had to be read anyway

    def heads_in(self, data: bytes | bytearray | memoryview) -> Heads:
        """The fixed fields of the records; `data` is what they were found in."""
        return self.heads if self.heads is not None else heads_at(data, self.places)


def find_records(stretch: Stretch, verify_body: bool = False) -> Found | None:
    """The places of all records of a stretch and its damages; None where more of the file's bytes are needed."""
    data = memoryview(stretch.data)
    have = min(stretch.end, len(data))
    first = stretch.start
    if not stretch.at_record:
        found_at = resync(data, first, have, stretch.base, stretch.file_end)
        if found_at is None:
            return Found(_NO_PLACES) if have >= stretch.end else None
        first = found_at
    if first >= stretch.stop:
        return Found(_NO_PLACES)
    if not stretch.is_ledger:
        places, at = chain(data, first, have, stretch.stop)
        if have < stretch.end and _goes_on(data, at, have, stretch):
            return None
        heads = heads_at(data, places)
        if _is_clean(data, heads, at, have, stretch, verify_body):
            return Found(heads.place, [], first, at, is_blank_of(data, at, stretch.file_end), heads)
    read = read_ledger if stretch.is_ledger else read_through
    reading = read(
        data, first, have, stretch.base, verify_body=verify_body, stop=stretch.stop, file_end=stretch.file_end
    )
    if have < stretch.end and reading.ran_out:
        return None  # what looks like damage may be the end of the bytes at hand
    return Found(np.array(reading.places, np.int64), reading.damages, first, reading.end, reading.blank)


def _goes_on(data: memoryview, at: int, have: int, stretch: Stretch) -> bool:
    """Whether a record seems to begin at this place and to end after the bytes at hand."""
    if at + FIXED > have:
        return True
    size, magic = BLANK.unpack_from(data, at)
    return magic in (MAGIC_V1, MAGIC_V2) and have < at + size <= stretch.end


def _is_clean(data: memoryview, heads: Heads, at: int, have: int, stretch: Stretch, verify_body: bool) -> bool:
    """Whether the records that the sizes lead to are whole, and lead to the end of the stretch."""
    if not _is_complete(data, at, have, stretch) or not are_whole(heads, stretch.base).all():
        return False
    return not (verify_body and bad_bodies(data, heads).size)


def _is_complete(data: memoryview, at: int, have: int, stretch: Stretch) -> bool:
    """Whether at this place data ends, or the file, or the next reader's first record stands."""
    if at >= stretch.end or is_blank_of(data, at, stretch.file_end):
        return True
    return at >= stretch.stop and not isinstance(check(data, at, have, False, stretch.base + at), Fault)


_NO_PLACES: Array = np.empty(0, np.int64)


@dataclass(slots=True)
class Heads:
    """The fixed fields of records, one array a field. The `_at` fields are places in the bytes they came from."""

    place: Array
    size: Array
    magic: Array
    body_crc: Array
    queue_id: Array
    flag: Array
    queue_offset: Array
    log_offset: Array
    sys_flag: Array
    born_timestamp: Array
    born_host_at: Array
    store_timestamp: Array
    store_host_at: Array
    reconsume_times: Array
    prepared_offset: Array
    body_at: Array
    body_size: Array
    topic_at: Array
    topic_size: Array
    properties_at: Array
    properties_size: Array

    def __len__(self) -> int:
        return len(self.place)

    def where(self, chosen: Array) -> Heads:
        """The records of a mask or of positions."""
        return Heads(*[getattr(self, name)[chosen] for name in Heads.__slots__])


def heads_at(data: bytes | bytearray | memoryview, places: list[int] | Array) -> Heads:
    """The fixed fields of the records at these places. REQUIRES that each record's size fits into the data.

    Fields of a record whose lengths do not add up are garbage; `are_whole` tells.
    """
    place = np.asarray(places, np.int64)
    if not len(place):
        return Heads(*[_NO_PLACES] * len(Heads.__slots__))
    limit = len(data)
    start = _sliding(data, head_dtype())[place]
    size, magic, sys_flag = _native(start["size"]), _native(start["magic"]), _native(start["sys_flag"])
    longs, ints, shorts = _sliding(data, ">i8"), _sliding(data, ">i4"), _sliding(data, ">i2")
    octets = np.frombuffer(data, np.uint8)
    store_time_at = place + np.where(sys_flag & BORN_V6, 68, 56)
    body_at = place + HEAD_SIZE
    has_v6 = sys_flag & (BORN_V6 | STORE_V6)
    if has_v6.any():
        body_at += 12 * ((sys_flag & BORN_V6) // BORN_V6 + (sys_flag & STORE_V6) // STORE_V6)
        # A record that claims IPv6 hosts may be shorter than they are: stay inside the data.
        np.minimum(body_at, limit - 3, out=body_at)
        np.minimum(store_time_at, limit - 28, out=store_time_at)
    body_size = _native(ints[body_at - 4])
    is_v2 = magic == MAGIC_V2
    topic_at = np.clip(body_at + body_size.astype(np.int64) + 1 + is_v2, 1, limit - 2)
    topic_size = octets[topic_at - 1].astype(np.int32)
    if is_v2.any():
        topic_size[is_v2] = shorts[topic_at[is_v2] - 2]
    properties_at = np.clip(topic_at + topic_size + 2, 2, limit)
    return Heads(
        place, size, magic, _native(start["body_crc"]), _native(start["queue_id"]), _native(start["flag"]),
        _native(start["queue_offset"]), _native(start["log_offset"]), sys_flag, _native(start["born_timestamp"]),
        place + 48, _native(longs[store_time_at]), store_time_at + 8, _native(ints[body_at - 16]),
        _native(longs[body_at - 12]), body_at, body_size, topic_at, topic_size, properties_at,
        _native(shorts[properties_at - 2]),
    )  # fmt: skip


def are_whole(heads: Heads, base: int) -> Array:
    """Which records have lengths that add up and were written for the offset they stand at."""
    end = heads.place + heads.size
    result: Array = (
        (heads.properties_at + heads.properties_size == end)
        & (heads.body_size >= 0)
        & (heads.topic_size >= 0)
        & (heads.properties_size >= 0)
        & (heads.body_at <= end)
        & (heads.log_offset == heads.place + base)
    )
    return result


def bad_bodies(data: memoryview, heads: Heads) -> Array:
    """Positions of the records whose body does not match its CRC: 0.3 µs and 2.5 GB/s."""
    ends = (heads.body_at + heads.body_size).tolist()
    sums = [crc32(data[begin:end]) for begin, end in zip(heads.body_at.tolist(), ends, strict=True)]
    computed = np.fromiter(sums, np.int64, len(sums)) & 0x7FFFFFFF
    return np.flatnonzero(computed != heads.body_crc)


def _sliding(data: bytes | bytearray | memoryview, dtype: Any) -> Array:
    """The data as one element of that type at *every* byte, without copying."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), kind, data, 0, (1,))


def _native(values: Array) -> Array:
    return values.astype(values.dtype.newbyteorder("="))


def cut_out(data: bytes | bytearray | memoryview | pa.Buffer, begins: Array, ends: Array) -> pa.BinaryArray:
    """The bytes between these places, as an Arrow array. REQUIRES ascending stretches that do not overlap."""
    if not len(begins):
        return pa.array([], pa.binary())
    borders = np.empty(2 * len(begins), np.int32)
    borders[0::2] = begins
    borders[1::2] = ends
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    stretches = pa.BinaryArray.from_buffers(pa.binary(), len(borders) - 1, buffers)
    return stretches.take(pa.array(np.arange(0, len(borders), 2)))


def topics_of(data: memoryview, heads: Heads) -> pa.DictionaryArray:
    """The topics of the records, as bytes; each distinct one is in the dictionary once."""
    return cut_out(data, heads.topic_at, heads.topic_at + heads.topic_size).dictionary_encode()


def texts(raw: pa.Array) -> pa.StringArray:
    """Bytes as text; malformed UTF-8 becomes U+FFFD, as Java reads it."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw.to_pylist()])


@dataclass(slots=True)
class Properties:
    """All properties of some records, in their order: `row` is the record of each, `names` and `values` its content."""

    rows: int
    row: Array
    names: pa.DictionaryArray
    values: pa.BinaryArray

    def column(self, name: bytes) -> pa.BinaryArray:
        """The value of one name for each record, null where it has none; of several the last counts."""
        number = pc.index(self.names.dictionary, pa.scalar(name, pa.binary())).as_py()
        if number < 0:
            return pa.nulls(self.rows, pa.binary())
        rows = np.flatnonzero(self.names.indices.to_numpy() == number)
        position = np.full(self.rows, -1, np.int64)
        position[self.row[rows]] = rows
        return self.values.take(pa.array(position, mask=position < 0))

    def maps(self) -> pa.MapArray:
        """One map a record. A name that occurs twice keeps its last value."""
        row, names, values = self.row, self.names, self.values
        rows = self._last_of_each_name()
        if rows is not None:
            row, names, values = row[rows], names.take(pa.array(rows)), values.take(pa.array(rows))
        counts = np.bincount(row, minlength=self.rows)
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        keys = texts(names.dictionary).take(names.indices) if len(names) else pa.array([], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, texts(values))

    def _last_of_each_name(self) -> Array | None:
        """Positions without those that a later one of the same name and record hides; None where there are none.

        Sorted by name alone, and stably, the properties of one record stand next to each other.
        """
        numbers = self.names.indices.to_numpy()
        order = np.argsort(numbers.astype(np.int16) if len(self.names.dictionary) < 30_000 else numbers, kind="stable")
        hidden = (np.diff(numbers[order]) == 0) & (np.diff(self.row[order]) == 0)
        if not hidden.any():
            return None
        return np.sort(np.delete(order, np.flatnonzero(hidden)))


def properties_of(data: memoryview, heads: Heads) -> Properties:
    """The properties of the records, by the rules of `message_properties`."""
    raw = cut_out(data, heads.properties_at, heads.properties_at + heads.properties_size)
    if not len(raw):
        return Properties(0, _NO_PLACES, pa.array([], pa.binary()).dictionary_encode(), pa.array([], pa.binary()))
    row_ends = np.frombuffer(raw.buffers()[1], np.int32, len(raw) + 1, raw.offset * 4)[1:]
    joined = np.frombuffer(raw.buffers()[2] or b"", np.uint8, int(row_ends[-1]))
    marks = np.flatnonzero(joined == _VALUE_END)
    # A piece ends at a mark or where its record's properties end; the next begins after the mark, or right there.
    at_rows = np.searchsorted(marks, row_ends)
    ends = np.insert(marks, at_rows, row_ends)
    is_mark = np.insert(np.ones(len(marks), np.int64), at_rows, 0)
    begins = np.concatenate(([0], (ends + is_mark)[:-1]))
    separators = np.append(np.flatnonzero(joined == _NAME_END), len(joined) + 1)
    middle = separators[np.searchsorted(separators, begins)]
    good = np.flatnonzero((middle > begins) & (middle < ends - 1))
    begins, middle, ends = begins[good], middle[good], ends[good]
    row = np.searchsorted(row_ends, begins, "right")
    values = raw.buffers()[2] or pa.py_buffer(b"")
    return Properties(
        len(raw), row, cut_out(values, begins, middle).dictionary_encode(), cut_out(values, middle + 1, ends)
    )
