"""One index file in its mapping: which messages carry a key (store/layout/index_layout.py has the bytes).

Its slots lie scattered over 20 MB of hole, and its entries follow one another. Both are reserved before they are
written: entries ahead, up to a MiB; slots page by page, remembered in a byte array, since reserving all of them at
once would make an index of ten messages cost 20 MB.

Java: store/index/IndexFile.java
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocketlet.store.disk import PAGE
from rocketlet.store.layout.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexColumns,
    IndexGeometry,
    IndexTable,
    chains,
    entry_dtype,
    seconds_since,
)
from rocketlet.store.mapped_file import MappedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

IndexItem = tuple[int, int, int]  # key hash, log offset, store timestamp


def entry_array(buffer: memoryview) -> NDArray[Any]:
    """Entries of an index file as numpy sees them."""
    import numpy

    return numpy.frombuffer(buffer, entry_dtype())


class IndexFile:
    """An index file and the table over it. `begin` of its mapped file is its name as a number."""

    __slots__ = ("_pages", "_ready", "file", "flushed", "geometry", "table")

    def __init__(self, file: MappedFile, geometry: IndexGeometry) -> None:
        self.file = file
        self.geometry = geometry
        self.table = IndexTable(file.buffer, geometry)
        self.table.next_entry = min(self.table.next_entry, geometry.entries)  # whatever a torn header says
        self.flushed = self.table.next_entry
        self._pages = bytearray(geometry.entries_at // PAGE + 1)  # 1: this page of header and slots may be written
        self._ready = 0

    def put_many(self, items: Sequence[IndexItem]) -> int:
        """Add as many entries as fit; returns how many. Raises OSError with nothing added."""
        table = self.table
        self._make_room(len(items))
        pages, slots = self._pages, self.geometry.slots
        for key_hash, _, _ in items:
            page = (HEADER_SIZE + key_hash % slots * SLOT_SIZE) // PAGE
            if not pages[page]:
                self._make_page(page)
        count = table.put_many(items)
        table.write_header()
        return count

    def put_columns(self, columns: IndexColumns) -> int:
        """The same for columns."""
        import numpy

        table = self.table
        self._make_room(len(columns.hashes))
        pages = (columns.hashes % self.geometry.slots * SLOT_SIZE + HEADER_SIZE) // PAGE
        is_ready = numpy.frombuffer(self._pages, numpy.uint8)[pages]
        if not is_ready.all():
            for page in numpy.unique(pages[is_ready == 0]).tolist():
                self._make_page(page)
        count = table.put_columns(columns)
        table.write_header()
        return count

    def _make_room(self, requested: int) -> None:
        next_entry = self.table.next_entry
        count = min(requested, self.geometry.entries - next_entry)
        end = self.geometry.entries_at + (next_entry + count) * ENTRY_SIZE
        if end > self._ready:
            self._ready = self.file.make_room(self.geometry.entries_at + next_entry * ENTRY_SIZE, end)

    def written_since(self, number: int) -> list[tuple[int, int]]:
        """The ranges of the file written by the entries from a number on: any slot, and the entries."""
        at = self.geometry.entries_at
        return [(0, at), (at + number * ENTRY_SIZE, at + self.table.next_entry * ENTRY_SIZE)]

    # ---- for recovery and checks

    def entries(self) -> NDArray[Any]:
        """The entries from number 1 to the last, as fields hash, log_offset, seconds, previous (big-endian)."""
        at = self.geometry.entries_at + ENTRY_SIZE
        return entry_array(self.file.buffer[at : at + self.count * ENTRY_SIZE])

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self.table.next_entry - 1

    def first_from(self, log_offset: int) -> int:
        """The number of the first entry for that part of the log; the next free one where all are before it."""
        if log_offset == 0 or not self.count:
            return 1
        is_in_log = self.entries()["log_offset"] >= log_offset
        return int(is_in_log.argmax()) + 1 if is_in_log.any() else self.count + 1

    def same_entries(self, number: int, columns: IndexColumns, base: int | None) -> int:
        """How many of the keys stand in the entries from `number` on, up to the first that does not.

        `base`: the time that the first entry of the file counts from; None where that is not known any more.
        """

        table, count = self.table, len(columns.hashes)
        first = int(columns.log_offsets[0]), columns.timestamp(0)
        if number == 1 and (table.begin_log_offset, table.begin_timestamp) != first:
            return 0
        entries = self.entries()[number - 1 : number - 1 + count]
        seconds = seconds_since(columns.time_column(), table.begin_timestamp, (base or 0) if number == 1 else None)
        matches = entries["seconds"] == seconds
        if number == 1 and base is None:
            matches[0] = True
        matches &= (entries["hash"] == columns.hashes) & (entries["log_offset"] == columns.log_offsets)
        return count if matches.all() else int(matches.argmin())

    def cut(self, next_entry: int, end_timestamp: int) -> None:
        """Remove entries from a number on, leaving zeros. REQUIRES that those before it are right and that no slot
        leads to less than it should: slots lead to the newest entry, or to one that is cut."""
        import numpy

        table, geometry = self.table, self.geometry
        self.file.zero_from(geometry.entries_at + next_entry * ENTRY_SIZE)
        table.next_entry = next_entry
        table.end_log_offset = table.entry(next_entry - 1)[1] if next_entry > 1 else 0
        table.end_timestamp = end_timestamp
        self._ready = 0
        heads = numpy.frombuffer(self._slots(), ">i4").copy()
        is_cut = (heads >= next_entry) | (heads < 0)
        heads[is_cut] = 0
        slots = self.entries()["hash"].astype(numpy.int64) % geometry.slots
        orphans = is_cut[slots].nonzero()[0]
        heads[slots[orphans]] = orphans + 1  # of equal slots the last, so the newest, stays
        self._put_slots(heads, repair=True)
        table.slots_used = int(numpy.count_nonzero(heads))
        self.file.make_room(0, HEADER_SIZE)
        table.write_header()

    def rechain(self, *, repair: bool) -> int:
        """Compute slots and previous entries from the hashes, and correct them; returns how many were wrong."""
        entries = self.entries()
        heads, previous, slots_used = chains(entries["hash"], self.geometry.slots)
        wrong = self._put_slots(heads, repair=repair) + self._put_previous(entries, previous, repair=repair)
        if self.table.slots_used != slots_used:
            wrong += 1
            self.table.slots_used = slots_used
        if repair and wrong:
            self.file.make_room(0, HEADER_SIZE)
            self.table.write_header()
        return wrong

    def _put_slots(self, heads: NDArray[Any], *, repair: bool) -> int:
        """Slots are compared a page at a time, so that a file with few entries stays sparse."""
        present, expected, wrong = self._slots(), heads.tobytes(), 0
        for begin in range(0, len(expected), PAGE):
            piece = expected[begin : begin + PAGE]
            if present[begin : begin + PAGE] != piece:
                wrong += 1
                if repair:
                    self.file.write(HEADER_SIZE + begin, piece)
        return wrong

    def _slots(self) -> bytes:
        return self.file.read_data(HEADER_SIZE, self.geometry.slots * SLOT_SIZE)

    def may_have(self, key_hash: int) -> bool:
        """Whether anything was ever written near a key's slot: a query must not read holes."""
        at = HEADER_SIZE + key_hash % self.geometry.slots * SLOT_SIZE
        if self._pages[at // PAGE]:
            return True
        part = self.file.region.next_data(at)
        return part is not None and part[0] <= at

    def _put_previous(self, entries: NDArray[Any], previous: NDArray[Any], *, repair: bool) -> int:
        differing = (entries["previous"] != previous).nonzero()[0].tolist()
        if repair:
            for index in differing:
                at = self.geometry.entries_at + (index + 2) * ENTRY_SIZE - SLOT_SIZE
                self.file.write(at, int(previous[index]).to_bytes(SLOT_SIZE, "big"))
        return len(differing)

    def correct_end(self, log_offset: int, timestamp: int, *, repair: bool) -> int:
        """Compare the header's end with the last entry's message; returns 1 where it differed."""
        table = self.table
        if (table.end_log_offset, table.end_timestamp) == (log_offset, timestamp):
            return 0
        if repair:
            table.end_log_offset, table.end_timestamp = log_offset, timestamp
            self.file.make_room(0, HEADER_SIZE)
            table.write_header()
        return 1

    def _make_page(self, page: int) -> None:
        for number in (0, page):
            if not self._pages[number]:
                self.file.region.reserve(number * PAGE, (number + 1) * PAGE)
                self._pages[number] = 1

    def __repr__(self) -> str:
        return f"<IndexFile {self.file.path}, {self.table.next_entry - 1} entries to {self.table.end_log_offset}>"
