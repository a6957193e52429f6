"""Bringing the index in line with the log: for recovery, which writes, and for checks, which only count.

Keys come in the order of the log. As long as the entries in the files match them, nothing is written; at the first that
differs the file is cut, later files are deleted, and the rest is added again. So an
index with holes, as a Java broker's crash leaves it, becomes whole, and a sound one stays byte for byte as it was.

An entry is right if hash, log offset and seconds are. The chains (slots and previous entries) follow from the hashes;
they are computed again for every file that is kept and corrected where they differ.

Two ways to begin, as for queues: with the log, where entries of messages that retention deleted are skipped; or from a
progress point, which says how many entries of which file are durable.

Java: store/index/IndexService.java (which deletes the newest file after a crash, and its older entries with it)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.java_hashes import hash_column
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.message_flags import ROLLBACK, TRANSACTION_MASK, gets_index_entry
from rocketlet.store.index_file import IndexFile
from rocketlet.store.layout.index_layout import IndexColumns
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.log_walk import Found
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.record_columns import RecordColumns

_PIECE = 1 << 14


@dataclass(slots=True)
class IndexFinding:
    """What was wrong: entries missing or other from a place on, chains broken, entries too many."""

    differing: int = 0
    chains: int = 0
    surplus: int = 0

    def __bool__(self) -> bool:
        return bool(self.differing or self.chains or self.surplus)


class IndexRebuild:
    """See the module's docstring. `repair` says whether to write."""

    def __init__(self, index: MessageIndex, log_begin: int, *, repair: bool) -> None:
        self._index = index
        self._repair = repair
        self._keys: list[bytes] = []  # with log offset and store timestamp of the message of each
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._file = 0  # which file is compared next ...
        self._number = 1  # ... from which entry on
        self._is_new = False  # the rest is entered, nothing compared any more
        self._last: tuple[int, int] | None = None  # log offset and time of the last key
        self.finding = IndexFinding()
        self.count = 0
        if repair:
            for file in [file for file in index.files if not file.count]:
                index.drop(file)  # it may hold entries that a torn header does not count
        self._skip_past(log_begin)

    @classmethod
    def after(
        cls, index: MessageIndex, name: int, next_entry: int, end_timestamp: int, *, was_clean: bool
    ) -> IndexRebuild:
        """A rebuild that continues where, by the progress point, entries are durable.

        After a crash the file may look unchanged and not be so: its slots may be newer than its header.
        """
        rebuild = cls.__new__(cls)
        rebuild._index, rebuild._repair, rebuild._is_new = index, True, True
        rebuild._keys, rebuild._offsets, rebuild._times, rebuild._last = [], [], [], None
        rebuild.finding, rebuild.count = IndexFinding(), 0
        while index.files and index.files[-1].file.begin > name:
            rebuild.finding.surplus += index.files[-1].table.next_entry - 1
            index.drop(index.files[-1])
        if index.files and (not was_clean or index.files[-1].table.next_entry != next_entry):
            index.files[-1].cut(next_entry, end_timestamp)
        return rebuild

    # ---- while the log is walked

    def add(self, batch: list[Found], all_keys: list[list[bytes]]) -> None:
        """Records with their keys."""
        for (log_offset, record), keys in zip(batch, all_keys, strict=True):
            if keys and gets_index_entry(record.sys_flag) and record.prepared_offset != LOST_MARK:
                prefix, time = record.topic + b"#", record.store_timestamp
                for key in keys:
                    self._keys.append(prefix + key)
                    self._offsets.append(log_offset)
                    self._times.append(time)
        if len(self._keys) >= _PIECE:
            self._enter_batch()

    def add_columns(self, columns: RecordColumns) -> None:
        """The same for columns."""
        self._enter_batch()
        self._enter(columns.keys_of(columns.sys_flags & TRANSACTION_MASK != ROLLBACK))

    def _enter_batch(self) -> None:
        if not self._keys:
            return
        import numpy

        hashes = numpy.abs(hash_column(self._keys).astype(numpy.int64)) & INT32_MAX
        columns = IndexColumns(hashes, numpy.array(self._offsets), numpy.array(self._times))
        self._keys, self._offsets, self._times = [], [], []
        self._enter(columns)

    def _enter(self, columns: IndexColumns) -> None:
        self.count += len(columns.hashes)
        while len(columns.hashes) and not self._is_new:
            columns = columns.after(self._compare(columns))
        self.finding.differing += len(columns.hashes)
        while len(columns.hashes) and self._repair:
            columns = columns.after(self._index.put_columns(columns))

    # ---- comparing

    def _skip_past(self, log_begin: int) -> None:
        """Entries of messages that are gone cannot be compared; they stand before all others."""
        for number, file in enumerate(self._index.files):
            self._file, self._number = number, file.first_from(log_begin)
            if self._number < file.table.next_entry:
                return
        if self._index.files:
            return
        self._is_new = True

    def _compare(self, columns: IndexColumns) -> int:
        """Compare with the next entries in the files; returns how many are settled. May find that they are new."""
        file = self._index.files[self._file]
        expected = columns.first(file.table.next_entry - self._number)
        if not len(expected.hashes):
            self._finish_file(file)
            if self._file + 1 < len(self._index.files):
                self._file, self._number, self._last = self._file + 1, 1, None
                return 0
            self._is_new = True
            return 0
        count = file.same_entries(self._number, expected, self._base_of_file())
        self._number += count
        if count:
            self._last = int(expected.log_offsets[count - 1]), expected.timestamp(count - 1)
        if count < len(expected.hashes):
            self._is_new = True
            if self._repair:
                self._drop_after(file)
                self._cut(file)
        return count

    def _base_of_file(self) -> int | None:
        """The time from which the first entry of a file counts its seconds: the end of the file before."""
        return self._index.files[self._file - 1].table.end_timestamp if self._file else None

    def _drop_after(self, file: IndexFile) -> None:
        while self._index.files[-1] is not file:
            self._index.drop(self._index.files[-1])

    def _cut(self, file: IndexFile) -> None:
        if self._number == 1:
            self._index.drop(file)
            return
        file.cut(self._number, self._last[1] if self._last else file.table.end_timestamp)
        self.finding.chains += file.rechain(repair=True)

    def _finish_file(self, file: IndexFile) -> None:
        """All entries of a file are right: check its chains and its header."""
        self.finding.chains += file.rechain(repair=self._repair)
        if self._last is not None:
            self.finding.chains += file.correct_end(*self._last, repair=self._repair)

    # ---- at the end of the walk

    def finish(self) -> IndexFinding:
        """Add the rest, and cut what follows the last record."""
        self._enter_batch()
        if self._is_new:
            return self.finding
        file = self._index.files[self._file]
        later_files = self._index.files[self._file + 1 :]
        surplus = file.table.next_entry - self._number + sum(other.table.next_entry - 1 for other in later_files)
        if surplus or later_files:
            self.finding.surplus += surplus
            if self._repair:
                self._drop_after(file)
                self._cut(file)
        else:
            self._finish_file(file)
        return self.finding
