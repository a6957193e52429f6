"""A consume queue whose offsets do not simply follow one another, built as our recovery builds it: a later record wins,
what is missing is marked LOST.

It is made whole by one task, its units come piece by piece, and its entries are in a temporary file where they are
many: so the length of the queue costs no memory.

Java: none
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

import numpy as np

from rocketlet.store.layout.consume_queue_entry import ENTRY, ENTRY_SIZE, LOST, PRE_BLANK, entry_dtype
from rocketlet.store.layout.queue_rules import most_missing

if TYPE_CHECKING:
    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.segment_rows import Array

MAX_BREAKS = 20
_IN_MEMORY = 16 << 20
_LOST_AT_ONCE = 1 << 16


class UnevenQueue:
    """`lost`: offsets that are marked so; `rewound`: those assigned twice; `implausible`: records whose offset was
    ignored; `breaks`: (log offset, offset expected, offset found) of the first records that do not follow."""

    def __init__(self, log_begin: int, entries: IO[bytes]) -> None:
        self.first = 0
        self.lost = 0
        self.rewound = 0
        self.implausible = 0
        self.breaks: list[tuple[int, int, int]] = []
        self._log_begin = log_begin
        self._following = -1
        self._entries = entries

    @property
    def length(self) -> int:
        """How many entries there are, lost ones among them."""
        return max(self._following - self.first, 0)

    def add(self, units: Array) -> None:
        """The next units, in the order of the log."""
        ends = [*(np.flatnonzero(np.diff(units["queue_offset"]) != 1) + 1).tolist(), len(units)]
        at = 0
        for end in ends:
            # Where a record's offset is ignored, those after it are examined one by one as well.
            while at < end:
                until = end if self._follow(*units[at].tolist()) else at + 1
                self._append(units[at:until])
                at = until

    def _follow(self, offset: int, log_offset: int, size: int, _: int) -> bool:
        """Make the queue end where this unit goes; False where its offset is not to be believed."""
        following = self._following
        if following < 0:
            self.first = self._following = offset
        elif offset != following:
            if len(self.breaks) < MAX_BREAKS:
                self.breaks.append((log_offset, following, offset))
            if offset > following + most_missing(log_offset - self._log_begin):
                self.implausible += 1
                return False
            if offset > following:
                self._lose(offset - following, ENTRY.pack(log_offset, size, LOST))
            else:
                self._cut(offset)
        return True

    def _lose(self, count: int, entry: bytes) -> None:
        self.lost += count
        self._following += count
        for written in range(0, count, _LOST_AT_ONCE):
            self._entries.write(entry * min(count - written, _LOST_AT_ONCE))

    def _cut(self, offset: int) -> None:
        self.rewound += self._following - max(offset, self.first)
        self.first, self._following = min(offset, self.first), offset
        self._entries.seek((offset - self.first) * ENTRY_SIZE)
        self._entries.truncate()

    def _append(self, units: Array) -> None:
        entries = np.empty(len(units), entry_dtype())
        for name in ("log_offset", "size", "tags_code"):
            entries[name] = units[name]
        self._entries.write(entries.tobytes())
        self._following += len(units)

    def files(self, rules: Rules) -> Iterator[tuple[int, bytes]]:
        """(file number, bytes without the zeros at the end) of the whole queue."""
        number, blank_count = divmod(self.first, rules.units_per_file)
        self._entries.seek(0)
        while entries := self._entries.read((rules.units_per_file - blank_count) * ENTRY_SIZE):
            yield number, PRE_BLANK * blank_count + entries
            number, blank_count = number + 1, 0


@contextmanager
def uneven_queue(parts: Iterable[Array], log_begin: int) -> Iterator[UnevenQueue]:
    """The whole queue from all its units, in the order of the log."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    with SpooledTemporaryFile(_IN_MEMORY, dir=folder or None) as entries:
        queue = UnevenQueue(log_begin, entries)
        for units in parts:
            queue.add(units)
        yield queue
