"""The index: which messages carry a key, over all its files.

Entries are put in the order of the log, first a message's unique key, then the words of its keys. A file is named after
the local time of the message that opened it, but always above the previous one even where the clock went back, since
the order of the files is the order of their names. A new file begins with the end of the one before (index_layout.py).

Invariant: all entries of a message at a lower log offset stand before those of one at a higher.

Java: store/index/IndexService.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketlet.common.java_numbers import index_key_hash
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.index_file import IndexFile, IndexItem
from rocketlet.store.layout.file_names import INDEX, index_name, parse_index_name
from rocketlet.store.layout.index_layout import HEADER_SIZE, IndexColumns, IndexGeometry
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.mapped_file_queue import Oddity

_log = logging.getLogger("rocketlet.store.message_index")


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    files: int
    entries: int
    end_log_offset: int
    end_timestamp: int


class MessageIndex:
    """The index files, oldest first."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self.directory = f"{config.store_path_root_dir}/{INDEX}"
        self.geometry = IndexGeometry(config.max_hash_slot_num, config.max_index_num)
        self.files: list[IndexFile] = []
        self._names_changed = False
        self._missing: set[str] = set()

    def load(self, *, repair: bool) -> list[Oddity]:
        """Open the files. A short one is reported and, to repair, extended to full length: its content is then
        compared.

        Java does not look at the length either; its mapping makes a short file longer.
        """
        odd: list[Oddity] = []
        for entry in self._disk.entries(self.directory):
            path = f"{self.directory}/{entry.name}"
            number = parse_index_name(entry.name)
            if number is None or entry.is_directory or entry.size > self.geometry.file_size:
                odd.append(Oddity(path, "foreign", entry.size))
                continue
            if entry.size < self.geometry.file_size:
                odd.append(Oddity(path, "length", entry.size))
                if not repair:
                    continue
                self._disk.extend(path, self.geometry.file_size)
            file = MappedFile(self._disk, path, number, self.geometry.file_size)
            self.files.append(IndexFile(file, self.geometry))
        return odd

    def put_some(self, items: Sequence[IndexItem]) -> int:
        """Add keys to the newest file, or to a new one if that is full; returns how many of them, at least one.

        Raises OSError, with nothing added.
        """
        return self._open_file(items[0][2]).put_many(items)

    def put_columns(self, columns: IndexColumns) -> int:
        """`put_some` of columns."""
        return self._open_file(columns.timestamp(0)).put_columns(columns)

    def _open_file(self, timestamp: int) -> IndexFile:
        """The newest file, or a new one if that is full."""
        if not self.files or self.files[-1].table.is_full:
            self.open_next(timestamp)
        return self.files[-1]

    def open_next(self, timestamp: int) -> IndexFile:
        """Make the file after the last one."""
        name = index_name(timestamp)
        last = self.files[-1] if self.files else None
        if last is not None and int(name) <= last.file.begin:
            name = f"{last.file.begin + 1:017d}"
        path = f"{self.directory}/{name}"
        region = self._disk.create(path, self.geometry.file_size)
        self._names_changed = True
        file = MappedFile(self._disk, path, int(name), self.geometry.file_size, region)
        try:
            file.make_room(0, HEADER_SIZE)
        except OSError:
            self._disk.remove(path)  # a file of zeros would count as one that lost its entries
            raise
        index_file = IndexFile(file, self.geometry)
        if last is not None:
            index_file.table.follow(last.table.end_log_offset, last.table.end_timestamp)
        index_file.table.write_header()
        self.files.append(index_file)
        return index_file

    def find(self, topic: str, key: str, max_count: int, begin: int, end: int) -> list[int]:
        """Log offsets of messages that may carry a key, within [begin, end] ms, newest first.

        Different keys can have the same hash. Times are whole seconds after a file's first entry.
        """
        key_hash = index_key_hash(topic, key)
        offsets: list[int] = []
        for file in reversed(self.files):
            if len(offsets) >= max_count:
                break
            if file.table.overlaps(begin, end) and file.may_have(key_hash):
                offsets += file.table.query(key_hash, max_count - len(offsets), begin, end)
            if file.table.begin_timestamp < begin:
                break
        return offsets

    def drop_before(self, log_begin: int) -> int:
        """Delete files all of whose messages are gone from the log, never the last; returns how many."""
        dropped = 0
        while len(self.files) > 1 and self.files[0].table.end_log_offset < log_begin:
            self.drop(self.files[0])
            dropped += 1
        return dropped

    def drop(self, file: IndexFile) -> None:
        self.files.remove(file)
        self._disk.remove(file.file.path)
        file.file.forget()
        self._names_changed = True

    def flush_of_dirty(self) -> Callable[[], None]:
        """A function that makes all entries durable; to be called once, where it may wait."""
        written = [
            (file, file.file.region, file.written_since(file.flushed), file.table.next_entry)
            for file in self.files
            if file.flushed != file.table.next_entry
        ]

        def flush() -> None:
            for file, region, spans, end in written:
                region.flush(*spans)
                file.flushed = end
                self._look_for(file)
            if self._names_changed:
                self._names_changed = False  # first, for the loop may make a file meanwhile
                self._disk.sync_directory(self.directory)

        return flush

    def _look_for(self, file: IndexFile) -> None:
        """Say once that somebody else has deleted a file. It ends nothing: the index can be made from the log."""
        path = file.file.path
        if path in self._missing or self._disk.exists(path) or file not in self.files:  # `drop` leaves the list first
            return
        self._missing.add(path)
        _log.error(
            "%s was deleted while the broker runs: from the next start on its keys are not found. If %s is deleted"
            " while the broker is stopped, the next start makes it anew from the log",
            path,
            self.directory,
        )

    def full_timestamp(self) -> int:
        """End time of the newest file that is full: what the checkpoint says of the index."""
        return max((file.table.end_timestamp for file in self.files if file.table.is_full), default=0)

    def statistics(self) -> IndexStatistics:
        last = self.files[-1].table if self.files else None
        return IndexStatistics(
            len(self.files),
            sum(file.table.next_entry - 1 for file in self.files),
            last.end_log_offset if last else 0,
            last.end_timestamp if last else 0,
        )
