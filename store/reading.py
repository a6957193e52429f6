"""Pulls by queue offset: which messages, how many, and what to answer where there are none.

A pull goes over the entries of the queue, and hands out slices of the log without decoding them. Messages that follow
one another in the log make one slice. What was written since this process started, and is recent by RocketMQ's measure
(`accessMessageInMemoryMaxRatio`), is in the page cache and is handed out as views of the mapping. Older messages are
read from the page cache, and where that would have to wait the result is `cold`: its slices are empty, and
`MessageStore.load` reads them in a worker thread.

A view held by a slow reader stays valid, whatever happens to its file: it keeps the mapping alive.

Java: store/DefaultMessageStore.java#getMessage, store/GetMessageStatus.java
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.layout.consume_queue_entry import ENTRY, LOST, PRE_BLANK_SIZE, is_pre_blank
from rocketlet.store.layout.queue_ext_layout import ExtUnit, is_address

# Entries looked at by one pull: what Java makes of maxFilterMessageSize 16000 / 20, more for a larger pull.
_MIN_EXAMINED = 800
_MAX_EXAMINED = 16_000  # most entries, whatever a pull asks for: 4 ms
# What one pull may spend on reading records, in units of about half a microsecond.
_RECORD_BUDGET = 20_000
_LOOKED_THROUGH = 32 << 10  # the longest properties
_LARGEST_PULL = 128 << 20
# Records read at once for a filter that has to look into them.
_MAX_UNREAD, _MAX_UNREAD_BYTES = 400, 8 << 20


class GetStatus(enum.Enum):
    """The names are RocketMQ's; the broker puts them into remarks."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


class Span(NamedTuple):
    """Records that follow one another in the log."""

    log_offset: int
    size: int


@dataclass(slots=True)
class GetResult:
    """What a pull found. `slices` hold `count` records one after another, byte for byte as stored."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview | bytes] = field(default_factory=list)
    count: int = 0
    size: int = 0
    cold: bool = False
    spans: list[Span] = field(default_factory=list)
    log_gap: int = 0  # bytes of log between the last message found and the end of the log
    unread: list[Span] = field(default_factory=list)
    """Records that a filter has to look into and only the disk has: nothing was found before they are warm."""

    def body(self) -> bytes:
        """The records joined; REQUIRES that the result is not cold (`MessageStore.load` makes it warm)."""
        assert not self.cold, "load it first"
        return bytes(self.slices[0]) if len(self.slices) == 1 else b"".join(self.slices)


MatchCode = Callable[[int], bool]
MatchUnit = Callable[[ExtUnit], bool]
MatchRecord = Callable[[memoryview], bool]


class Reading:
    """Pulls over one log. `hot_from` is the log offset from which on messages are known to be in the page cache."""

    def __init__(self, log: CommitLog, memory: int) -> None:
        self._log = log
        self._memory = memory
        self.hot_from = 0

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        config: StoreConfig,
        match: MatchCode | None = None,
        match_unit: MatchUnit | None = None,
        match_record: MatchRecord | None = None,
        max_bytes: int | None = None,
        record_cost: int = 1,
    ) -> GetResult:
        if queue is None or queue.end == 0:
            status = GetStatus.NO_MATCHED_LOGIC_QUEUE if queue is None else GetStatus.NO_MESSAGE_IN_QUEUE
            return GetResult(status, 0, 0, 0)
        result = GetResult(GetStatus.FOUND, offset, queue.begin, queue.end)
        if offset < queue.begin:
            result.status, result.next_offset = GetStatus.OFFSET_TOO_SMALL, queue.begin
        elif offset == queue.end:
            result.status = GetStatus.OFFSET_OVERFLOW_ONE
        elif offset > queue.end:
            result.status, result.next_offset = GetStatus.OFFSET_OVERFLOW_BADLY, queue.end
        else:
            self._collect(result, queue, max_count, config, match, match_unit, match_record, max_bytes, record_cost)
        return result

    def _collect(
        self,
        result: GetResult,
        queue: ConsumeQueue,
        max_count: int,
        config: StoreConfig,
        match: MatchCode | None,
        match_unit: MatchUnit | None,
        match_record: MatchRecord | None,
        max_bytes: int | None,
        record_cost: int,
    ) -> None:
        log, offset = self._log, result.next_offset
        recent = self._memory * config.access_message_in_memory_max_ratio // 100
        in_memory = (config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory)
        on_disk = (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk)
        entries = queue.entries(offset, min(max(_MIN_EXAMINED, max_count), _MAX_EXAMINED))
        if not entries:
            result.status, result.next_offset = GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset)
            return
        limit = min(max_bytes or _LARGEST_PULL, _LARGEST_PULL)
        count = size = 0
        budget = _RECORD_BUDGET
        spans: list[list[int]] = []
        status = GetStatus.NO_MATCHED_MESSAGE
        files = log.files.files
        log_begin, log_end = files[0].begin if files else 0, log.end
        first, hot_from = offset, max(self.hot_from, log_end - recent)
        for log_offset, record_size, tags_code in ENTRY.iter_unpack(entries):
            if tags_code == LOST or (record_size == PRE_BLANK_SIZE and is_pre_blank(log_offset, record_size)):
                offset += 1
                continue
            if count:
                max_messages, most_bytes = in_memory if log_end - log_offset <= recent else on_disk
                if count >= min(max_messages, max_count) or size + record_size > min(most_bytes, limit):
                    break
            if match is not None and not self._matches(queue, tags_code, match, match_unit):
                offset += 1
                continue
            if not log_begin <= log_offset <= log_end - record_size:
                if not count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                offset += 1
                continue
            if match_record is not None:
                if budget <= 0:
                    break
                budget -= record_cost * (2 + (min(record_size, _LOOKED_THROUGH) >> 12))
                record = log.read(log_offset, record_size)
                if record is not None and log_offset < hot_from and not self._is_in_memory(log_offset, record_size):
                    if offset == first:
                        result.unread = _records_in(entries, log_begin, log_end)
                    break
                if record is None or not match_record(record):
                    offset += 1
                    continue
            if spans and spans[-1][1] == log_offset:
                spans[-1][1] += record_size
            else:
                spans.append([log_offset, log_offset + record_size])
            count += 1
            size += record_size
            offset += 1
            if max_count <= count:
                break
        result.next_offset = offset
        result.status = GetStatus.FOUND if count else status
        result.count, result.size = count, size
        if count:
            result.spans = [Span(begin, end - begin) for begin, end in spans]
            result.log_gap = log_end - spans[-1][1]
            self._take(result, hot_from)

    def _is_in_memory(self, log_offset: int, size: int) -> bool:
        file = self._log.files.find(log_offset)
        return file is None or file.region.read_now(log_offset - file.begin, size) is not None

    def _matches(self, queue: ConsumeQueue, tags_code: int, match: MatchCode, match_unit: MatchUnit | None) -> bool:
        if queue.ext is None or not is_address(tags_code):
            return match(tags_code)
        unit = queue.ext.read(tags_code)
        if unit is None:
            return True  # its file is gone: the caller checks the tags again
        return match(unit.tags_code) and (match_unit is None or match_unit(unit))

    def at(self, spans: list[Span], size: int, config: StoreConfig) -> GetResult:
        """Known parts of the log, `size` bytes in all, as a pull hands them out. REQUIRES that they are there."""
        result = GetResult(GetStatus.FOUND, 0, 0, 0, count=len(spans), size=size, spans=spans)
        recent = self._memory * config.access_message_in_memory_max_ratio // 100
        self._take(result, max(self.hot_from, self._log.end - recent))
        return result

    def _take(self, result: GetResult, hot_from: int) -> None:
        """Views of hot messages, bytes from the page cache, or nothing at all where that would have to wait."""
        log, slices = self._log, list[memoryview | bytes]()
        file, view = None, memoryview(b"")
        for log_offset, size in result.spans:
            if log_offset >= log.tail_begin and log_offset >= hot_from:
                at = log_offset - log.tail_begin
                slices.append(log.tail[at : at + size])
                continue
            if file is None or not file.begin <= log_offset < file.end:
                file = log.files.find(log_offset)
                assert file is not None
                view = file.buffer.toreadonly()
            at = log_offset - file.begin
            if log_offset >= hot_from:
                slices.append(view[at : at + size])
                continue
            piece = file.region.read_now(at, size)
            if piece is None:
                result.cold = True
                return
            slices.append(piece)
        result.slices = slices

    def loader(self, spans: list[Span]) -> Callable[[], list[memoryview | bytes]]:
        """A function that reads these, to be called once where it may wait."""
        places = []
        for span in spans:
            file = self._log.files.find(span.log_offset)
            if file is not None:
                places.append((file.region, span.log_offset - file.begin, span.size))
        return lambda: [region.read(at, size) for region, at, size in places]


def _records_in(entries: memoryview, log_begin: int, log_end: int) -> list[Span]:
    """The records that the first of these entries point to."""
    spans, size = list[Span](), 0
    for log_offset, record_size, tags_code in ENTRY.iter_unpack(entries):
        if tags_code == LOST or not log_begin <= log_offset <= log_end - record_size:
            continue
        spans.append(Span(log_offset, record_size))
        size += record_size
        if len(spans) >= _MAX_UNREAD or size >= _MAX_UNREAD_BYTES:
            break
    return spans
