"""Records of a stretch of the log as columns: all that queues and index need of hundreds of them, by numpy.

One by one, a record costs 7 µs from its bytes to queue and index. Here the heads are gathered by one call, and tails
(topic and properties) that have one length, the same names and the same separators are the rows of a table, as those
that one producer writes are: a tenth of the time. The others are read one by one, in between.

Java: store/CommitLog.java#checkMessageAndReturnSize
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketlet.common.columns import bounds_of_equal
from rocketlet.common.crc import crc32
from rocketlet.common.java_hashes import hash_column, hash_of_rows, index_hashes
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.message_flags import BORN_V6, STORE_V6
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import HEAD_SIZE, MAGIC_V1, PROPERTIES_MAX, Buffer, Fault, outline
from rocketlet.common.property_places import PropertyPlaces, property_places
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.layout.index_layout import IndexColumns
from rocketlet.store.layout.queue_rules import LOST_MARK, entry_code

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEW = 24  # as many tails one by one cost what a table of them costs
_TRIES = 3  # tables with too few rows, of one group, ...
_MAX_WASTE = 16  # ... and of a stretch: each costs 50 µs
_SMALLEST_TAIL = 4  # with a topic of one byte
_LONGEST_TAIL = 3 + 255 + PROPERTIES_MAX
_ZERO, _VALUE_END, _SPACE, _NOT_ASCII = 0, 2, 32, 128
_SCHEDULE = SCHEDULE_TOPIC.encode()


@dataclass(slots=True)
class RecordColumns:
    """Columns of int64, a row for each record. Keys come in the order of the log, each with the row of its record and
    its hash, which is not negative; lost records (`LOST_MARK`) have none."""

    log_offsets: NDArray[Any]
    sizes: NDArray[Any]
    queue_ids: NDArray[Any]
    queue_offsets: NDArray[Any]
    sys_flags: NDArray[Any]
    timestamps: NDArray[Any]
    tags_codes: NDArray[Any]
    topics: list[bytes]
    topic_of: NDArray[Any]  # which of the topics each record has
    key_rows: NDArray[Any]
    key_hashes: NDArray[Any]
    has_zeros: bool = False  # in a topic or in properties, as where a page was not written

    def keys_of(self, is_filed: NDArray[Any]) -> IndexColumns:
        """What the index files of those records."""
        rows, hashes = self.key_rows, self.key_hashes
        if not is_filed.all():
            is_key = is_filed[rows]
            rows, hashes = rows[is_key], hashes[is_key]
        return IndexColumns(hashes, self.log_offsets[rows], self.timestamps[rows])

    def by_queue(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """These rows by their queues, those of each in their order, and the queues in that of their first rows."""
        names = ((self.topic_of << 32) + self.queue_ids)[rows]  # a queue id may be below zero
        if not len(rows) or bool((names == names[0]).all()):
            return [rows] if len(rows) else []
        order = names.argsort(kind="stable")
        ordered, rows = names[order], rows[order]
        groups = (rows[begin:end] for begin, end in pairwise(bounds_of_equal(ordered)))
        return sorted(groups, key=lambda group: int(group[0]))


@cache
def _head_dtype() -> np.dtype[Any]:
    import numpy

    return numpy.dtype({
        "names": [
            "size", "magic", "crc", "queue_id", "queue_offset", "log_offset", "sys_flag", "timestamp", "prepared",
            "body_size",
        ],
        "formats": [">i4", ">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, 4, 8, 12, 20, 28, 36, 56, 76, 84],
        "itemsize": HEAD_SIZE,
    })  # fmt: skip


def record_columns(
    buffer: Buffer, places: list[int], end: int, base: int, delays: tuple[int, ...], *, verify_body: bool = False
) -> RecordColumns | None:
    """The records at these places of a log file that begins at `base`. None where one of them is no whole record; with
    `verify_body` its CRC has to hold too.

    REQUIRES: each is as long as it says and ends before `end`; there is one place or more.
    """
    try:
        return _Reader(buffer, places, end, base, delays, verify_body).read()
    except _Broken:
        return None


class _Broken(Exception):
    """A record is none."""


class _Reader:
    def __init__(
        self, buffer: Buffer, places: list[int], end: int, base: int, delays: tuple[int, ...], verify_body: bool
    ) -> None:
        import numpy

        self._buffer = buffer
        self._end = end
        self._base = base
        self._delays = delays
        self._verify_body = verify_body
        self._at = at = numpy.array(places, numpy.int64)
        # A window of a head's size at each byte, of which those at the places are copied out: whole, as by fields that
        # takes ten times as long.
        heads = numpy.ndarray((len(buffer) - HEAD_SIZE + 1,), f"V{HEAD_SIZE}", buffer, 0, (1,))[at].view(_head_dtype())
        size, queue_id, queue_offset, sys_flag, timestamp = (
            heads[name].astype(numpy.int64) for name in ("size", "queue_id", "queue_offset", "sys_flag", "timestamp")
        )
        codes, topic_of = numpy.zeros(len(at), numpy.int64), numpy.zeros(len(at), numpy.int64)
        self._columns = RecordColumns(
            at + base, size, queue_id, queue_offset, sys_flag, timestamp, codes, [], topic_of, at[:0], at[:0]
        )
        self._tails_at = at + HEAD_SIZE + heads["body_size"]
        self._crcs = heads["crc"]
        self._numbers: dict[bytes, int] = {}  # of topics
        self._keys: list[tuple[NDArray[Any], NDArray[Any]]] = []  # rows and hashes
        self._is_usual = (
            (heads["magic"] == MAGIC_V1)
            & (heads["sys_flag"] & (BORN_V6 | STORE_V6) == 0)
            & (heads["body_size"] >= 0)
            & (self._tails_at + _SMALLEST_TAIL <= at + size)
            & (self._tails_at + _LONGEST_TAIL >= at + size)
            & (heads["log_offset"] == at + base)
            & (heads["prepared"] != LOST_MARK)
        )
        self._is_left = numpy.ones(len(at), bool)  # no table has it

    def read(self) -> RecordColumns:
        """Raises _Broken."""
        import numpy

        columns = self._columns
        usual = self._is_usual.nonzero()[0]
        if self._verify_body:
            self._verify_bodies(usual)
        waste = 0
        for size, rows in self._groups(usual):
            limit = min(waste + _TRIES, _MAX_WASTE)
            while len(rows) >= _FEW and waste < limit:
                others = self._table(rows, size)
                waste += len(rows) - len(others) < _FEW + len(rows) // _FEW
                rows = others
        left = self._is_left.nonzero()[0]
        if len(left):
            self._one_by_one(left)
        columns.topics = list(self._numbers)
        if self._keys:
            columns.key_rows = numpy.concatenate([rows for rows, _ in self._keys])
            columns.key_hashes = numpy.concatenate([hashes for _, hashes in self._keys])
            if len(self._keys) > 1:
                order = columns.key_rows.argsort(kind="stable")
                columns.key_rows, columns.key_hashes = columns.key_rows[order], columns.key_hashes[order]
        return columns

    def _groups(self, rows: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Of these, the many with tails of one size and, since the last four bytes of their topics are the same, most
        likely of one topic: the size, and which they are. The largest first."""
        import numpy

        at = self._tails_at[rows]
        sizes = self._at[rows] + self._columns.sizes[rows] - at
        topic_ends = at + numpy.minimum(numpy.frombuffer(self._buffer, numpy.uint8)[at], sizes - 1)
        windows = numpy.ndarray((len(self._buffer) - 3,), ">u4", self._buffer, 0, (1,))
        names = sizes << 32 | windows[numpy.maximum(topic_ends - 3, at)]
        order = names.argsort(kind="stable")
        ordered = names[order]
        spans = [(end - begin, begin) for begin, end in pairwise(bounds_of_equal(ordered)) if end - begin >= _FEW]
        for count, begin in sorted(spans, reverse=True):
            yield int(sizes[order[begin]]), rows[order[begin : begin + count]]

    def _verify_bodies(self, rows: NDArray[Any]) -> None:
        """Raises _Broken."""
        begins, ends = (self._at[rows] + HEAD_SIZE).tolist(), self._tails_at[rows].tolist()
        buffer = self._buffer
        for begin, end, crc in zip(begins, ends, self._crcs[rows].tolist(), strict=True):
            if crc32(buffer[begin:end]) & INT32_MAX != crc:
                raise _Broken

    def _topic(self, topic: bytes) -> int:
        return self._numbers.setdefault(topic, len(self._numbers))

    def _table(self, rows: NDArray[Any], size: int) -> NDArray[Any]:
        """Read those records, of the ones whose tails have this size, that are like the first; returns the others.
        Raises _Broken."""
        import numpy

        windows = numpy.ndarray((len(self._buffer) - size + 1,), f"V{size}", self._buffer, 0, (1,))
        tails = windows[self._tails_at[rows]].view(numpy.uint8).reshape(len(rows), size)
        first = tails[0].tobytes()
        shape = _shape(first)
        places = shape.places
        if shape.topic == _SCHEDULE:  # its codes are times of delivery
            return rows[:0]
        if not shape.topic.isascii() or shape.has_zeros or not all(first[place].isascii() for place in shape.hashed):
            return rows[1:]
        differs = tails != tails[0]
        is_varying = differs.any(axis=0)
        others = rows[:0]
        if is_varying.any():
            is_alike = _is_alike(tails, differs, is_varying, shape)
            if not is_alike.all():
                others, rows, tails = rows[~is_alike], rows[is_alike], tails[is_alike]
        self._is_left[rows] = False
        self._columns.topic_of[rows] = self._topic(shape.topic)
        hashed = tails if is_varying.any() else tails[:1]  # one for all
        if places.tags is not None:
            self._columns.tags_codes[rows] = hash_of_rows(b"", hashed[:, places.tags])
        if places.keys:
            count = len(places.keys)
            hashes = numpy.broadcast_to(index_hashes(shape.topic + b"#", hashed, places.keys), (len(rows), count))
            self._keys.append((rows.repeat(count), hashes.ravel()))
        return others

    def _one_by_one(self, rows: NDArray[Any]) -> None:
        """Read records of any kind. Raises _Broken."""
        import numpy

        columns = self._columns
        topics: list[int] = []
        times: list[int] = []
        codes: list[int] = []
        keys: list[bytes] = []
        key_rows: list[int] = []
        for row, at in zip(rows.tolist(), self._at[rows].tolist(), strict=True):
            record = outline(self._buffer, at, self._end, self._verify_body, self._base + at)
            if isinstance(record, Fault):
                raise _Broken
            columns.has_zeros |= b"\0" in record.properties or b"\0" in record.topic
            tags, words = tags_and_keys(record.properties)
            topics.append(self._topic(record.topic))
            times.append(record.store_timestamp)
            codes.append(entry_code(record, tags, self._delays))
            if words and record.prepared_offset != LOST_MARK:
                prefix = record.topic + b"#"
                keys += [prefix + word for word in words]
                key_rows += [row] * len(words)
        columns.topic_of[rows], columns.timestamps[rows], columns.tags_codes[rows] = topics, times, codes
        if keys:
            hashes = numpy.abs(hash_column(keys).astype(numpy.int64)) & INT32_MAX
            self._keys.append((numpy.array(key_rows, numpy.int64), hashes))


class _Shape(NamedTuple):
    """Where in a tail its values are; all else is the same in every tail of this shape."""

    topic: bytes
    places: PropertyPlaces
    has_zeros: bool  # in topic or properties

    @property
    def hashed(self) -> list[slice]:
        places = self.places
        return [place for place in (places.tags, places.words, *places.keys[:1]) if place is not None]


def _is_alike(tails: NDArray[Any], differs: NDArray[Any], is_varying: NDArray[Any], shape: _Shape) -> NDArray[Any]:
    """Which tails have the shape of the first. `differs`: where they differ from it; `is_varying`: in which places any
    of them does, since only there can one be of another shape, and most are the same in all."""
    import numpy

    def varying(*slices: slice) -> NDArray[Any]:
        is_in = numpy.zeros(len(is_varying), bool)
        for place in slices:
            is_in[place] = True
        return is_varying & is_in

    in_values = varying(*shape.places.values)
    elsewhere = is_varying & ~in_values
    is_alike = ~numpy.asarray(differs[:, elsewhere].any(axis=1))
    bytes_in_values = tails[:, in_values]
    is_alike &= ~((bytes_in_values == _VALUE_END) | (bytes_in_values == _ZERO)).any(axis=1)
    is_alike &= (tails[:, varying(*shape.hashed)] < _NOT_ASCII).all(axis=1)
    if shape.places.words is not None:
        is_space = tails[:, varying(shape.places.words)] == _SPACE
        is_alike &= (is_space == is_space[0]).all(axis=1)
    return is_alike


def _shape(tail: bytes) -> _Shape:
    """Raises _Broken."""
    at = tail[0] + 3
    if at > len(tail) or int.from_bytes(tail[at - 2 : at], "big", signed=True) != len(tail) - at:
        raise _Broken
    topic, properties = tail[1 : tail[0] + 1], tail[at:]
    return _Shape(topic, property_places(tail, at), b"\0" in topic or b"\0" in properties)
