"""The two byte streams between a master and a slave, big-endian, without a handshake. DO NOT CHANGE. Pure.

    slave → master    int64 log end         first: where to begin; later: what the slave has. Repeated every 5 s
    master → slave    int64 log offset
                      int32 size            0: a heartbeat, whose offset is where the next slice will begin
                      size bytes            a slice of the log: cut anywhere in a record, never across a log file

Java: store/ha/HAConnection.java, store/ha/HAService.java (HAClient)
"""

from __future__ import annotations

from struct import Struct

from rocketlet.common.errors import RocketletError

REPORT = Struct(">q")
SLICE = Struct(">qi")

# Java's slave has a buffer of 4 MiB for a slice with its header; its master sends 32 KiB at once.
LARGEST_SLICE = (4 << 20) - SLICE.size


class StreamBroken(RocketletError):
    """The peer sent something that no master, or no slave, sends. The connection has to end."""


def report(log_end: int) -> bytes:
    """A slave's report to its master."""
    return REPORT.pack(log_end)


class ReportReader:
    """Extracts a slave's reports from the incoming bytes."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The reports that are complete now, in order."""
        data = self._rest + data
        whole_size = len(data) - len(data) % REPORT.size
        self._rest = data[whole_size:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole_size])]


class SliceReader:
    """Extracts a master's slices from the incoming bytes without holding them back: a slice's bytes are passed on in
    the pieces in which they arrive, so nothing but a partial header is ever kept."""

    __slots__ = ("_head", "_offset", "_remaining")

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0  # of the next byte of the current slice ...
        self._remaining = 0  # ... and how many bytes of it are missing

    def feed(self, data: bytes) -> list[tuple[int, memoryview]]:
        """(log offset, bytes) of each piece; a heartbeat has none. Raises StreamBroken."""
        pieces: list[tuple[int, memoryview]] = []
        view, at = memoryview(data), 0
        while at < len(view):
            if self._remaining:
                piece = view[at : at + self._remaining]
                pieces.append((self._offset, piece))
                self._offset += len(piece)
                self._remaining -= len(piece)
                at += len(piece)
                continue
            missing = SLICE.size - len(self._head)
            self._head += view[at : at + missing]
            at += missing
            if len(self._head) == SLICE.size:
                self._offset, self._remaining = SLICE.unpack(self._head)
                self._head = b""
                if self._offset < 0 or not 0 <= self._remaining <= LARGEST_SLICE:
                    raise StreamBroken(f"the master announces {self._remaining} bytes for log offset {self._offset}")
                if not self._remaining:
                    pieces.append((self._offset, view[:0]))
        return pieces
