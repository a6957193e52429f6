"""One index file in its mapping: which messages carry a key (store/layout/index_layout.py has the bytes).

Its slots lie scattered over 20 MB of hole, and its entries follow one another. Both are reserved before they are
written: entries ahead, up to a MiB; slots page by page, remembered in a byte array, since reserving all of them at
once would make an index of ten messages cost 20 MB.

Java: store/index/IndexFile.java
"""

from __future__ import annotations

from collections.abc import Sequence

from store.disk import PAGE
from store.layout.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexGeometry, IndexTable
from store.mapped_file import MappedFile

IndexItem = tuple[int, int, int]  # key hash, log offset, store timestamp


class IndexFile:
    """An index file and the table over it. `begin` of its mapped file is its name as a number."""

    __slots__ = ("_pages", "_ready", "file", "flushed", "geometry", "table")

    def __init__(self, file: MappedFile, geometry: IndexGeometry) -> None:
        self.file = file
        self.geometry = geometry
        self.table = IndexTable(file.buffer, geometry)
        self.flushed = self.table.next_entry
        self._pages = bytearray(geometry.entries_at // PAGE + 1)  # 1: this page of header and slots may be written
        self._ready = 0

    def put_many(self, items: Sequence[IndexItem]) -> int:
        """Enter as many as fit; returns how many. Raises OSError with nothing entered."""
        table = self.table
        count = min(len(items), self.geometry.entries - table.next_entry)
        end = self.geometry.entries_at + (table.next_entry + count) * ENTRY_SIZE
        if end > self._ready:
            at = self.geometry.entries_at + table.next_entry * ENTRY_SIZE
            self._ready = self.file.make_room(at, end)
        pages, slots = self._pages, self.geometry.slots
        for key_hash, _, _ in items:
            if not pages[(HEADER_SIZE + key_hash % slots * SLOT_SIZE) // PAGE]:
                self._make_page(key_hash)
        done = table.put_many(items)
        table.write_header()
        return done

    def _make_page(self, key_hash: int) -> None:
        page = (HEADER_SIZE + key_hash % self.geometry.slots * SLOT_SIZE) // PAGE
        for wanted in (0, page):
            if not self._pages[wanted]:
                self.file.region.reserve(wanted * PAGE, (wanted + 1) * PAGE)
                self._pages[wanted] = 1

    def __repr__(self) -> str:
        return f"<IndexFile {self.file.path}, {self.table.next_entry - 1} entries to {self.table.end_log_offset}>"
