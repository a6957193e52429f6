"""Raw pieces of the log for what copies it: a slave, a backup.

What was written since this process started, and is recent, is handed out as a view of the mapping, without a copy.
Older bytes come from the page cache, and where that would have to wait the caller reads in a worker thread (`wait`): a
slave that is days behind must not stall the loop of its master.

Java: store/DefaultMessageStore.java#getCommitLogData
"""

from __future__ import annotations

from collections.abc import Callable

from rocketlet.store.commit_log import CommitLog
from rocketlet.store.disk import Disk
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.offload import offload


class SliceGone(LookupError):
    """The log begins after the requested offset: retention deleted its file."""


class LogSlices:
    """Slices of one log. `hot_from` answers from which log offset on bytes are known to be in memory."""

    def __init__(self, disk: Disk, log: CommitLog, hot_from: Callable[[], int]) -> None:
        self._disk = disk
        self._log = log
        self._hot_from = hot_from

    def now(self, offset: int, max_size: int) -> memoryview | bytes | None:
        """At most `size` bytes from an offset below the log's end on, never across files; None: the disk has to be
        waited for. Raises SliceGone."""
        file, at, size = self._place(offset, max_size)
        if offset >= self._hot_from():
            return file.buffer[at : at + size].toreadonly()
        return file.region.read_now(at, size)

    async def wait(self, offset: int, max_size: int) -> bytes:
        """The same, read in a worker thread. Raises SliceGone, OSError."""
        file, at, size = self._place(offset, max_size)
        region = file.region
        return await offload(self._disk, lambda: region.read(at, size))

    def _place(self, offset: int, max_size: int) -> tuple[MappedFile, int, int]:
        assert offset < self._log.end, "nothing is written there yet"
        file = self._log.files.find(offset)
        if file is None:
            raise SliceGone(f"the log begins at {self._log.begin}; {offset} is gone")
        return file, offset - file.begin, min(max_size, file.end - offset, self._log.end - offset)
