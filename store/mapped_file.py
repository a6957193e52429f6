"""One file of the log, of a queue or of its extension: where it begins in the sequence, and its mapping.

The file is mapped when that is first needed: a broker may have tens of thousands of queue files of which a few hundred
are in use. Writers call `make_room` first (see store/disk.py on SIGBUS); the room doubles up to a MiB, so that a small
file costs what it holds and a busy one a call every MiB.

Java: store/MappedFile.java
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from rocketlet.store.disk import PAGE, Disk, Region

_LARGEST_STEP = 1 << 20  # 1 ms of page faults at a time
_AHEAD = 512 << 10  # some turns of sends
_STEP_AHEAD = 128 << 10


class MappedFile:
    """A file whose first byte is byte `begin` of the sequence. Positions are offsets inside the file."""

    __slots__ = ("_disk", "_region", "begin", "path", "size")

    def __init__(self, disk: Disk, path: str, begin: int, size: int, region: Region | None = None) -> None:
        self._disk = disk
        self._region = region
        self.path = path
        self.begin = begin
        self.size = size

    @property
    def end(self) -> int:
        """Where the next file begins."""
        return self.begin + self.size

    @property
    def region(self) -> Region:
        if self._region is None:
            self._region = self._disk.open(self.path)
        return self._region

    @property
    def buffer(self) -> memoryview:
        return self.region.buffer

    def make_room(self, at: int, end: int, *, zeros: bool = False) -> int:
        """Make [at, end) safe to write, and more if there is; returns up to where. Raises OSError (ENOSPC).

        `zeros`: all after `at` reads as zeros.
        """
        reserve = self.region.reserve_zeros if zeros else self.region.reserve
        target = min(self.size, end + min(max(at, PAGE), _LARGEST_STEP))
        try:
            reserve(at, target)
        except OSError as error:
            if error.errno != errno.ENOSPC or target == end:
                raise
            reserve(at, end)
            return end
        return target

    def make_room_ahead(self, at: int, ready: int) -> int:
        """Make room a little past `ready` if a writer at `at` will soon need it; returns up to where.

        REQUIRES that everything after `ready` reads as zeros. A full disk is ignored: `make_room` will report it.
        """
        if not at <= ready < min(at + _AHEAD, self.size):
            return ready
        end = min(self.size, ready + _STEP_AHEAD)
        try:
            self.region.reserve_zeros(ready, end)
        except OSError:
            return ready
        return end

    def write(self, at: int, data: bytes) -> None:
        """Write a few bytes outside the hot path."""
        self.region.reserve(at, at + len(data))
        self.buffer[at : at + len(data)] = data

    def read_data(self, at: int, size: int) -> bytes:
        """Bytes of the file, some of which may be holes: those are zeros, and are not looked at."""
        parts: list[bytes] = []
        end = min(at + size, self.size)
        while at < end and (part := self.region.next_data(at)) is not None and part[0] < end:
            stop = min(part[1], end)
            parts += (bytes(part[0] - at), bytes(self.buffer[part[0] : stop]))
            at = stop
        parts.append(bytes(max(end - at, 0)))
        return b"".join(parts)

    def zero_from(self, at: int) -> int:
        """Make everything from `at` on read as zeros; holes stay holes. Returns how many bytes were not zero."""
        cleared = 0
        for place, piece in list(data_pieces(self, at)):
            present = len(piece) - piece.count(0)
            if present:
                self.write(place, bytes(len(piece)))
                cleared += present
        return cleared

    def forget(self) -> None:
        """Drop the mapping; it is made again when needed. Views of it stay valid."""
        self._region = None

    def __repr__(self) -> str:
        return f"<MappedFile {self.path} from {self.begin}>"


def data_pieces(file: MappedFile, at: int) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of what may not be a hole from `at` to the end of the file, at most a MiB at a time."""
    region = file.region
    while at < file.size and (part := region.next_data(at)) is not None:
        begin, end = part
        end = min(end, begin + _LARGEST_STEP)
        yield begin, bytes(region.buffer[begin:end])
        at = end


def data_end(file: MappedFile, at: int) -> int:
    """Where nothing but a hole follows in a file: no search may read holes, for that fills the memory with zeros."""
    end = at
    while end < file.size and (part := file.region.next_data(end)) is not None:
        end = part[1]
    return end
