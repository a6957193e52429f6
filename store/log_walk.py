"""Walking the log record by record, over its files, and over damage: for recovery, which heals, and for checks.

What a walk finds goes to a `Sink` in the order of the log. Where there is no whole record, the walk searches for the
next one that is provably whole: magic, lengths, body CRC and its own log offset all hold. There are two explanations:

- *Torn*: the machine stopped while these pages were written, and later pages reached the disk before earlier ones.
  None of it was ever flushed. The log ends where the first record is not whole.
- *Rotten*: it was whole on the disk once, and later bits went bad or a file was lost. The records after it
  were flushed and acknowledged, and must not be lost with it.

`is_rotten` decides; docs/decisions/damaged-logs.md gives the reasons. It says rotten only on proof: the store was
closed cleanly; or the damage lies before the end of a sealed file or before a flush mark; or the record after it is
older than what the checkpoint knows to be flushed; or the damage cannot be a tear, since a page that was not written
holds zeros from some byte on to the end of its sector, and no sector of the damage does.

One by one a record takes 4 to 5 µs. So a walk over many goes by stretches of 4 MiB: where every record of one is whole,
the sink gets their columns (record_columns.py), for a quarter of that. Any other stretch, and a small log, which need
not wait for numpy, is read record by record, and all that is decided about damage is decided there.

Java: store/CommitLog.java#recoverNormally, #recoverAbnormally (which know only the first story)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rocketlet.common.message_record import FIXED, Fault, Outline, outline
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.dispatch import LastRecord
from rocketlet.store.layout.log_scan import LONGEST_ZEROS, chain, is_blank_of, resync
from rocketlet.store.mapped_file import MappedFile, data_end, data_pieces
from rocketlet.store.record_columns import RecordColumns, record_columns

_BATCH = 20_000
_SMALL_LOG = 20_000  # records: as many one by one take as long as numpy's import
_STRETCH = 1 << 22
_AHEAD = 4 * _STRETCH  # asked of the disk while what comes before is read
_MANY = 24  # so many records are read by columns in the time in which they are read one by one
_SIZE_FIELD = 4
_HALF_WRITTEN = 64  # zeros at the end of a sector; the head of a record never has so many in a row, but at most 25
_CLOCK_STEP = 1000  # ms that a clock may be set back between two records of one life of a broker

Found = tuple[int, Outline]


@dataclass(frozen=True, slots=True)
class Loss:
    """A stretch of the log without a whole record, followed by whole ones."""

    log_offset: int
    size: int
    fault: Fault
    store_timestamp: int  # of the last record before it


class Sink(Protocol):
    """Receives what a walk finds."""

    def records(self, batch: list[Found]) -> None: ...

    def columns(self, columns: RecordColumns) -> None: ...

    def is_expected(self, record: Outline) -> bool:
        """Whether the record can follow the earlier ones: it is not a leftover of a log that was cut."""


@dataclass(slots=True)
class Evidence:
    """What is known about the history of a log before it is walked."""

    is_clean: bool  # the store was closed, so everything had been flushed
    flushed_time: int  # store time of a record that is known to be flushed; 0: none
    sector: int  # what a disk writes whole or not at all
    flushed_end: int = 0  # the log was flushed up to there once, as a seal or a flush mark says


class LogWalk:
    """One walk. After `run`: the `end` of the log, the `fault` that ends it, the `losses` that were skipped."""

    def __init__(
        self,
        log: CommitLog,
        sink: Sink,
        evidence: Evidence | None,
        heal: Callable[[Loss], bool] | None,
        *,
        delays: tuple[int, ...],
        verify_body: bool = True,
        on_file: Callable[[MappedFile], None] | None = None,
    ) -> None:
        """Without `evidence` every damage is skipped. `heal` puts something readable in the place of a loss;
        then the walk goes on at its beginning, and where it answers False the log ends there."""
        self._log = log
        self._sink = sink
        self._evidence = evidence
        self._heal = heal
        self._delays = delays
        self._verify_body = verify_body
        self._on_file = on_file
        self._batch: list[Found] = []
        self._newest = 0  # store time of the last record found
        self.count = 0
        self.end = 0
        self.last: LastRecord | None = None
        self.fault: Fault | None = None
        self.losses: list[Loss] = []

    def run(self, begin: int) -> None:
        """REQUIRES that a record begins at `begin`, or that the log ends there."""
        at: int | None = begin
        self.end = begin
        while at is not None and (file := self._log.files.find(at)) is not None:
            if self._on_file is not None:
                self._on_file(file)
            at = self._walk_file(file, at - file.begin)
        self._flush_batch()

    def _walk_file(self, file: MappedFile, at: int) -> int | None:
        """Returns where the walk goes on in another file; None where the log ends."""
        buffer, size, base, batch, verify = file.buffer, file.size, file.begin, self._batch, self._verify_body
        data = data_end(file, at)
        odd_to = at  # up to there records are read one by one
        while True:
            if at >= odd_to and self.count >= _SMALL_LOG:
                at = self._walk_plain(file, at, data)
                odd_to = at + _STRETCH
            result = outline(buffer, at, data, verify, base + at)
            if result is Fault.TORN:
                result = self._ending_in_a_hole(file, at, data)
            if isinstance(result, Outline):
                if (b"\0" in result.properties or b"\0" in result.topic) and self._has_torn_tail(base + at, result):
                    self._flush_batch()
                    self.end, self.fault = base + at, Fault.TORN
                    return None
                batch.append((base + at, result))
                at += result.size
                if len(batch) >= _BATCH:
                    self._flush_batch()
                continue
            self._flush_batch()
            if result is Fault.BLANK and is_blank_of(buffer, at, size):
                self.end = base + size
                return self.end
            self.end, self.fault = base + at, result
            next_offset = self._skip_damage(file, at, result)
            if next_offset is None:
                return None
            self.fault = None
            if not base <= next_offset < base + size:
                self.end = next_offset
                return next_offset
            at, data = next_offset - base, data_end(file, next_offset - base)

    def _walk_plain(self, file: MappedFile, at: int, data: int) -> int:
        """Hand on, by columns, stretches with nothing in them but whole records; returns where another one begins."""
        asked_to = at
        while True:
            if asked_to < data:
                file.region.prefetch(asked_to, min(at + _AHEAD, data))
                asked_to = at + _AHEAD
            places, end = chain(file.buffer, at, data, at + _STRETCH)
            if len(places) < _MANY:
                return at
            columns = record_columns(file.buffer, places, end, file.begin, self._delays, verify_body=self._verify_body)
            if columns is None or columns.has_zeros:  # may have a torn tail
                return at
            self._flush_batch()
            size, timestamp = int(columns.sizes[-1]), int(columns.timestamps[-1])
            self._note(len(places), LastRecord(file.begin + places[-1], size, timestamp))
            self._sink.columns(columns)
            at = end

    def _ending_in_a_hole(self, file: MappedFile, at: int, data: int) -> Outline | Fault:
        """The record at a place that goes on past the end of the data, `data`.

        The zeros at the end of a record (the length of properties that it does not have, for one) may be all that it
        has in a page. To the file system that page then is a hole, like one that was never written. What a hole reads
        as is part of the record. It is not read through the mapping: see store/disk.py on holes.
        """
        size = int.from_bytes(file.read_data(at, _SIZE_FIELD), "big", signed=True)
        if not FIXED <= size <= min(data - at + LONGEST_ZEROS, file.size - at):
            return Fault.TORN
        return outline(file.read_data(at, size), 0, size, self._verify_body, file.begin + at)

    def _has_torn_tail(self, offset: int, record: Outline) -> bool:
        """Whether a sector with a part of topic or properties was not written: then all of that part is zeros.

        No checksum covers them, so Java takes such a record for whole. A user's text that looks so counts as
        torn only where nothing says that the record was flushed.
        """
        evidence = self._evidence
        if evidence is None or evidence.is_clean or record.store_timestamp < evidence.flushed_time:
            return False
        if offset < evidence.flushed_end:
            return False
        if b"\0" in record.topic:
            return True
        end = offset + record.size
        place = end - len(record.properties)
        while place < end:
            stop = min(place - place % evidence.sector + evidence.sector, end)
            if not any(record.properties[place - end : stop - end or None]):
                return True
            place = stop
        return False

    def _flush_batch(self) -> None:
        """Hand the batch on."""
        if self._batch:
            log_offset, record = self._batch[-1]
            self._note(len(self._batch), LastRecord(log_offset, record.size, record.store_timestamp))
            self._sink.records(self._batch[:])
            self._batch.clear()

    def _note(self, count: int, last: LastRecord) -> None:
        self.count += count
        self.last = last
        self.end = last.log_offset + last.size
        self._newest = last.store_timestamp

    def _skip_damage(self, file: MappedFile, at: int, fault: Fault) -> int | None:
        """Where to continue after damage; None where the log ends there."""
        next_offset, witness = self._next_whole(file, at, fault)
        offset, evidence = file.begin + at, self._evidence
        flushed_end = evidence.flushed_end if evidence is not None else 0
        is_clean = evidence is not None and evidence.is_clean
        if offset < flushed_end and (next_offset is None or (next_offset > flushed_end and not is_clean)):
            next_offset = flushed_end  # what lies behind may be torn, and is judged by itself
        if next_offset is None:
            return None
        loss = Loss(offset, next_offset - offset, fault, self._newest)
        if evidence is not None and not self._is_rotten(loss, witness):
            return None
        if self._heal is not None and not self._heal(loss):
            return None
        self.losses.append(loss)
        return offset if self._heal is not None else next_offset

    def _next_whole(self, file: MappedFile, at: int, fault: Fault) -> tuple[int | None, Outline | None]:
        """(log offset where records continue, the first one there; None for a blank record). None if nothing is
        whole."""
        if fault is Fault.BODY_CRC:  # its lengths hold, so it ends where it says
            record = outline(file.buffer, at, file.size, False, file.begin + at)
            assert isinstance(record, Outline)
            place = at + record.size
            if self._is_start(file, place):
                return file.begin + place, self._outline_at(file, place)
            is_closed = self._evidence is not None and self._evidence.is_clean
            if is_closed and not any(any(piece) for _, piece in data_pieces(file, place)):
                return file.begin + place, None  # the last record of a log that was closed
        position = self._search(file, at + 1)
        while position is None:
            following = self._log.files.find(file.end)
            if following is None:
                return None, None
            file = following
            position = 0 if self._is_start(file, 0) else self._search(file, 1)
        return file.begin + position, self._outline_at(file, position)

    def _search(self, file: MappedFile, at: int) -> int | None:
        """The next place in this file where a whole record, or the file's blank one, begins."""
        end = data_end(file, at)
        while at < end:
            place = resync(file.buffer, at, end, file.begin, file.size, min(end + LONGEST_ZEROS, file.size))
            if place is None or self._is_start(file, place):
                return place
            at = place + 1
        return None

    def _is_start(self, file: MappedFile, at: int) -> bool:
        return self._outline_at(file, at) is not None or is_blank_of(file.buffer, at, file.size)

    def _outline_at(self, file: MappedFile, at: int) -> Outline | None:
        data = data_end(file, at)
        record = outline(file.buffer, at, data, self._verify_body, file.begin + at)
        if record is Fault.TORN:
            record = self._ending_in_a_hole(file, at, data)
        return record if isinstance(record, Outline) else None

    def _is_rotten(self, loss: Loss, witness: Outline | None) -> bool:
        """Whether this was whole on the disk once. `witness` is the first record after it."""
        evidence = self._evidence
        assert evidence is not None
        if witness is not None:
            is_older = witness.store_timestamp < self._newest - _CLOCK_STEP
            if is_older or not self._sink.is_expected(witness):
                return False  # a leftover of a log that Java cut without zeroing what followed
        if evidence.is_clean or loss.log_offset < evidence.flushed_end:
            return True
        if witness is not None and 0 < witness.store_timestamp < evidence.flushed_time:
            return True
        return not self._may_be_torn(loss, evidence.sector)

    def _may_be_torn(self, loss: Loss, sector: int) -> bool:
        """Whether a crash can have left this: some sector is as it was before the damaged record was written, so it is
        empty from there on; or it was written half-way, and a good part of its end is empty."""
        place, end = loss.log_offset, loss.log_offset + loss.size
        while place < end:
            file = self._log.files.find(place)
            assert file is not None
            stop = min(place - place % sector + sector, file.end)
            content = bytes(file.buffer[place - file.begin : stop - file.begin])
            written = len(content.rstrip(b"\0"))
            if not written or (stop <= end and len(content) - written >= _HALF_WRITTEN):
                return True
            place = stop
        return False
