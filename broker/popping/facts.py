"""The binary format of pops' facts: facts about one queue of one group, from which its table is rebuilt.

    1 kind   1 flags   2 length of group   2 length of topic   4 queue id   4 length of the rest after the names
    group, topic, then by kind:

    START       8 next offset             the table is empty, and continues there
    POPPED      8 popTime, 8 due, 8 next, 4 n, 2 length of attempt id, n offsets (8), n times (2), n keys (8), then it
    DONE        4 n, n offsets            acknowledged, or moved to the dead letters
    CHANGED     8 popTime, 8 due, 4 n, n offsets
    ENTRIES     4 n, n offsets, n due (8), n popped (8), n times (2), n keys (8)   part of a snapshot
    DROPPED                               the table is no longer needed
    FIRST       8 popTime, 8 due, 8 offset, 4 n    POPPED of n messages from there on, of no group, for the first time
    DONE_RUN    8 offset, 4 n             DONE of n messages from there on
    TABLE       8 next offset             a snapshot's START: ignored if the table is already known

In POPPED, an entry with times 0 is held, and flag 1 means in order. Big-endian throughout. DO NOT
CHANGE: on disk (docs/formats/state_log.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

from rocketlet.broker.popping.in_flight import Entry, InFlight
from rocketlet.common.errors import RocketletError
from rocketlet.common.java_numbers import INT64_MAX


class FactError(RocketletError):
    """Bytes that are not a fact; the rest of the record is not read."""


class Kind(IntEnum):
    START = 1
    POPPED = 2
    DONE = 3
    CHANGED = 4
    ENTRIES = 5
    DROPPED = 6
    FIRST = 7
    DONE_RUN = 8
    TABLE = 9


class Key(NamedTuple):
    """One queue of one group."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class Fact:
    kind: Kind
    key: Key
    next: int = 0
    pop_time: int = 0
    due: int = 0
    offsets: Sequence[int] = ()
    entries: list[Entry] = field(default_factory=list)
    attempt: str = ""
    order: bool = False


IN_ORDER = 1

_HEAD = Struct(">BBHHiI")
_START = Struct(">q")
_POPPED = Struct(">qqqIH")
_COUNT = Struct(">I")
_CHANGED = Struct(">qqI")
_FIRST = Struct(">qqqI")
_RUN = Struct(">qI")
# Messages of a fact about a run: more than any pop or ack has.
_LONGEST_RUN = 1 << 16


def start(key: Key, next_offset: int) -> bytes:
    return _fact(Kind.START, key, _START.pack(next_offset))


def table(key: Key, next_offset: int) -> bytes:
    return _fact(Kind.TABLE, key, _START.pack(next_offset))


def popped(key: Key, pop_time: int, due: int, next_offset: int, entries: Sequence[Entry], attempt: str | None) -> bytes:
    """Those of `entries` that were delivered became due at `due`; the others (times 0) are held.

    `attempt` is None if the pop is not orderly.
    """
    name = (attempt or "").encode()
    columns = (
        _longs([entry.offset for entry in entries])
        + _shorts([entry.times for entry in entries])
        + _longs([entry.key for entry in entries])
    )
    return _fact(
        Kind.POPPED,
        key,
        _POPPED.pack(pop_time, due, next_offset, len(entries), len(name)) + columns + name,
        0 if attempt is None else IN_ORDER,
    )


def popped_first(key: Key, pop_time: int, due: int, offsets: range) -> bytes:
    """For messages without a message group, delivered for the first time, that are next in their queue."""
    return _fact(Kind.FIRST, key, _FIRST.pack(pop_time, due, offsets.start, len(offsets)))


def done(key: Key, offsets: Sequence[int]) -> bytes:
    if isinstance(offsets, range):
        return _fact(Kind.DONE_RUN, key, _RUN.pack(offsets.start, len(offsets)))
    return _fact(Kind.DONE, key, _COUNT.pack(len(offsets)) + _longs(offsets))


def changed(key: Key, pop_time: int, due: int, offsets: Sequence[int]) -> bytes:
    return _fact(Kind.CHANGED, key, _CHANGED.pack(pop_time, due, len(offsets)) + _longs(offsets))


def part(key: Key, entries: Sequence[Entry]) -> bytes:
    columns = list(zip(*entries, strict=True))
    return _fact(
        Kind.ENTRIES,
        key,
        _COUNT.pack(len(entries))
        + b"".join(_shorts(column) if at == 3 else _longs(column) for at, column in enumerate(columns)),
    )


def dropped(key: Key) -> bytes:
    return _fact(Kind.DROPPED, key, b"")


def read(data: bytes) -> Iterator[Fact]:
    """The facts of a record, in their order. Raises FactError."""
    at = 0
    while at < len(data):
        try:
            kind, flags, group_size, topic_size, queue_id, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            names_end = at + group_size + topic_size
            end = names_end + size
            if end > len(data):
                raise FactError(f"a fact at byte {at} goes on after the end of its record")
            group, topic = data[at : at + group_size].decode(), data[at + group_size : names_end].decode()
            yield _read(Kind(kind), Key(group, topic, queue_id), data[names_end:end], flags)
        except (error, ValueError, IndexError) as why:
            raise FactError(f"no fact at byte {at}: {why}") from None
        at = end


def _read(kind: Kind, key: Key, data: bytes, flags: int) -> Fact:
    if kind is Kind.START or kind is Kind.TABLE:
        return Fact(kind, key, next=_START.unpack(data)[0])
    if kind is Kind.FIRST:
        pop_time, due, first, count = _FIRST.unpack(data)
        return Fact(kind, key, pop_time=pop_time, due=due, offsets=_run(first, count))
    if kind is Kind.DONE_RUN:
        return Fact(kind, key, offsets=_run(*_RUN.unpack(data)))
    if kind is Kind.POPPED:
        pop_time, due, following, count, name_size = _POPPED.unpack_from(data)
        at = _POPPED.size
        offsets, times = _read_longs(data, at, count), _read_shorts(data, at + 8 * count, count)
        keys = _read_longs(data, at + 10 * count, count)
        name = data[at + 18 * count :]
        if len(name) != name_size:
            raise ValueError("a wrong length")
        entries = [
            Entry(offset, due if tries else 0, pop_time if tries else 0, tries, group)
            for offset, tries, group in zip(offsets, times, keys, strict=True)
        ]
        order = bool(flags & IN_ORDER)
        return Fact(kind, key, following, pop_time, due, entries=entries, attempt=name.decode(), order=order)
    if kind is Kind.DONE:
        return Fact(kind, key, offsets=_read_longs(data, _COUNT.size, _COUNT.unpack_from(data)[0]))
    if kind is Kind.CHANGED:
        pop_time, due, count = _CHANGED.unpack_from(data)
        return Fact(kind, key, pop_time=pop_time, due=due, offsets=_read_longs(data, _CHANGED.size, count))
    if kind is Kind.ENTRIES:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        columns = [_read_longs(data, at + 8 * count * number, count) for number in range(3)]
        columns.append(_read_shorts(data, at + 24 * count, count))
        columns.append(_read_longs(data, at + 26 * count, count))
        return Fact(kind, key, entries=[Entry(*values) for values in zip(*columns, strict=True)])
    return Fact(kind, key)


def apply(fact: Fact, table: InFlight) -> None:
    """Apply a fact other than DROPPED and TABLE to its table."""
    if fact.kind is Kind.START:
        table.clear(fact.next)
    elif fact.kind is Kind.FIRST:
        assert isinstance(fact.offsets, range)
        table.put_first(fact.offsets, fact.due, fact.pop_time)
    elif fact.kind in (Kind.POPPED, Kind.ENTRIES):
        for entry in fact.entries:
            table.put(entry)
        table.next = max(table.next, fact.next)
    elif fact.kind in (Kind.DONE, Kind.DONE_RUN):
        table.done_all(fact.offsets)
    elif fact.kind is Kind.CHANGED:
        for offset in fact.offsets:
            present = table.get(offset)
            if present is not None:
                table.put(present._replace(popped=fact.pop_time, due=fact.due))


def _run(first: int, count: int) -> range:
    if count > _LONGEST_RUN or not 0 <= first < INT64_MAX - count:
        raise ValueError(f"a run of {count} messages from {first} on")
    return range(first, first + count)


@lru_cache(1024)
def _names(group: str, topic: str) -> tuple[bytes, int, int]:
    return (group + topic).encode(), len(group.encode()), len(topic.encode())


def _fact(kind: Kind, key: Key, data: bytes, flags: int = 0) -> bytes:
    group, topic, queue_id = key
    names, group_size, topic_size = _names(group, topic)
    return _HEAD.pack(kind, flags, group_size, topic_size, queue_id, len(data)) + names + data


def _longs(values: Sequence[int]) -> bytes:
    import numpy

    return Struct(f">{len(values)}q").pack(*values) if len(values) < 64 else numpy.array(values, ">i8").tobytes()


def _shorts(values: Sequence[int]) -> bytes:
    import numpy

    return Struct(f">{len(values)}H").pack(*values) if len(values) < 64 else numpy.array(values, ">u2").tobytes()


def _read_longs(data: bytes, at: int, count: int) -> list[int]:
    import numpy

    values: list[int] = numpy.frombuffer(data, ">i8", count, at).tolist()
    return values


def _read_shorts(data: bytes, at: int, count: int) -> list[int]:
    import numpy

    values: list[int] = numpy.frombuffer(data, ">u2", count, at).tolist()
    return values
