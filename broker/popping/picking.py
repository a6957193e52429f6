"""Which messages of a queue a pop gets next, from the queue's entries: offsets and places, no bytes of the log.

Java: broker/processor/PopMessageProcessor.java#popMsgFromQueue
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from rocketlet.broker.filter.message_filter import MessageFilter
from rocketlet.common.message_properties import find
from rocketlet.common.message_record import properties_of
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.layout.consume_queue_entry import ENTRY, LOST, is_pre_blank
from rocketlet.store.layout.queue_ext_layout import is_address
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import Span

# Entries that a filter may reject before other tasks run: 200 µs.
_EXAMINED: Final = 800
_OF_ANY_RECORD: Final = 100  # to read a record and find its properties
_LOST: Final = LOST.to_bytes(8, "big")  # if found in other fields by chance, entries are examined one by one
FILTER_BUDGET: Final = 20_000
"""What one pop may spend on records that its filter looks into, over all queues, in terms of it, each 0.1 µs."""


class Candidate(NamedTuple):
    """A message and its place in the log."""

    offset: int
    log_offset: int
    size: int


@dataclass(slots=True)
class PickResult:
    """`following` is after all examined entries; `bytes` is the size of the messages."""

    following: int
    messages: list[Candidate] = field(default_factory=list)
    bytes: int = 0
    spent: int = 0


def pick(
    store: MessageStore,
    queue: ConsumeQueue,
    offset: int,
    limit: int,
    message_filter: MessageFilter,
    most_bytes: int,
    budget: int = FILTER_BUDGET,
) -> PickResult:
    """Up to `limit` messages from an offset, including a first one larger than `most_bytes`. While some of the budget
    is left, another record is read, however much it `spent`."""
    result = PickResult(max(offset, queue.begin))
    by_code, by_record = message_filter.by_code, message_filter.by_record
    filtered = by_code is not None or by_record is not None
    entries = queue.entries(result.following, _EXAMINED if filtered else limit)
    if not entries and result.following < queue.end:
        result.following = min(queue.next_file_offset(result.following), queue.end)
        return result
    log = store.log
    cost = _OF_ANY_RECORD + message_filter.record_cost
    for log_offset, size, tags_code in ENTRY.iter_unpack(entries):
        current = result.following
        if tags_code == LOST or is_pre_blank(log_offset, size) or not log.begin <= log_offset <= log.end - size:
            result.following = current + 1
            continue
        if by_code is not None and not _matches(queue, tags_code, message_filter):
            result.following = current + 1
            continue
        if by_record is not None:
            if result.spent >= budget:
                break
            result.spent += cost
            record = log.read(log_offset, size)
            if record is None or not by_record(record):
                result.following = current + 1
                continue
        if result.messages and result.bytes + size > most_bytes:
            break
        result.messages.append(Candidate(current, log_offset, size))
        result.bytes += size
        result.following = current + 1
        if len(result.messages) >= limit:
            break
    return result


class Run(Struct, gc=False):
    """Consecutive messages of a queue, and the parts of the log that hold them."""

    offsets: range
    spans: list[Span]
    bytes: int
    log_offsets: Sequence[int]
    sizes: Sequence[int]

    def candidates(self) -> Iterator[Candidate]:
        """One by one."""
        return map(Candidate, self.offsets, self.log_offsets, self.sizes)


def next_run(store: MessageStore, queue: ConsumeQueue, offset: int, limit: int, most_bytes: int) -> Run | None:
    """Up to `limit` messages from an offset, if nothing has to be examined one by one; else None: `pick` them."""
    if offset < queue.begin:
        return None
    entries = queue.entries(offset, limit)
    if not entries:
        return None
    numbers = _places(len(entries) // ENTRY.size).unpack(entries)
    log_offsets, sizes = numbers[0::2], numbers[1::2]
    total, log = sum(sizes), store.log
    begin, end = log_offsets[0], log_offsets[-1] + sizes[-1]
    # A blank entry's size alone is more than any pop takes.
    if total > most_bytes or begin < log.begin or end > log.end or _LOST in bytes(entries):
        return None
    offsets = range(offset, offset + len(sizes))
    if end - begin == total:
        return Run(offsets, [Span(begin, total)], total, log_offsets, sizes)
    spans: list[Span] = []
    at, run_end = begin, begin
    for log_offset, size in zip(log_offsets, sizes, strict=True):
        if log_offset != run_end:
            spans.append(Span(at, run_end - at))
            at = log_offset
        run_end = log_offset + size
    spans.append(Span(at, run_end - at))
    return Run(offsets, spans, total, log_offsets, sizes)


@lru_cache(64)
def _places(count: int) -> struct.Struct:
    """The places of several entries, without their tags: 32 take 3 µs less than one by one."""
    assert ENTRY.format == ">qiq"
    return struct.Struct(">" + "qi8x" * count)


def _matches(queue: ConsumeQueue, tags_code: int, message_filter: MessageFilter) -> bool:
    assert message_filter.by_code is not None
    if queue.ext is None or not is_address(tags_code):
        return message_filter.by_code(tags_code)
    unit = queue.ext.read(tags_code)
    if unit is None:
        return True
    return message_filter.by_code(unit.tags_code) and (message_filter.by_unit is None or message_filter.by_unit(unit))


def place_of(store: MessageStore, queue: ConsumeQueue, offset: int) -> Candidate | None:
    """The log position of the message at an offset; None if it is gone."""
    entry = queue.entry(offset) if offset >= queue.begin else None
    if entry is None or entry[2] == LOST or is_pre_blank(entry[0], entry[1]):
        return None
    log_offset, size, _ = entry
    return Candidate(offset, log_offset, size) if store.log.begin <= log_offset <= store.log.end - size else None


def group_key(store: MessageStore, candidate: Candidate) -> int:
    """A number for a message's group (its sharding key); 0 if it has none."""
    record = store.log.read(candidate.log_offset, candidate.size)
    name = find(properties_of(record), b"__SHARDINGKEY") if record is not None else None
    return hash_of(name) if name else 0


def hash_of(name: bytes) -> int:
    """63 bits, never 0, the same on every machine, since it is stored. Two groups with one hash wait for each other."""
    value = 0xCBF29CE484222325  # FNV-1a
    for byte in name[:256]:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value >> 1 or 1
