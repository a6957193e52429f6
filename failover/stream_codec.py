"""What replicas say to each other on their own port. Pure.

    joining    b"RKR1", int32 length, JSON     a replica: Hello, then the leader: Welcome
    replica →  int64 log end                   once it has promised the leader's epoch; repeated as it receives
    leader →   int64 log offset, int32 size, int64 confirmed, size bytes
                                               size 0: a heartbeat; `confirmed`: all counted replicas have it

The first byte distinguishes it from TLS, whose ClientHello begins with 22.

Java: store/ha/autoswitch/AutoSwitchHAClient.java of 5.x (handshake)
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

import msgspec

from rocketlet.common.errors import RocketletError
from rocketlet.failover.epochs import BadEpochs, Epochs

MAGIC = b"RKR1"
REPORT = Struct(">q")
SLICE = Struct(">qiq")
LARGEST_GREETING = 1 << 18  # fits a thousand epochs and some names
LARGEST_SLICE = 1 << 20
_HEAD = Struct(">4si")


class StreamBroken(RocketletError):
    """The peer sent something that no replica sends. The connection has to end."""


class Hello(msgspec.Struct):
    """A replica that wants to join the leader of `epoch`, with a log of these epochs, from `begin` to `end`."""

    cluster: str
    name: str
    group: str
    member: str
    address: str
    epoch: int
    promised: int
    begin: int
    end: int
    epochs: list[tuple[int, int]]


class Welcome(msgspec.Struct):
    """The leader's log, so that the replica can see where the two diverge; or why it may not join."""

    refused: str = ""
    group: str = ""
    epoch: int = 0
    begin: int = 0
    end: int = 0
    confirmed: int = 0
    epochs: list[tuple[int, int]] = []


G = TypeVar("G", Hello, Welcome)


def greeting(message: Hello | Welcome) -> bytes:
    """An encoded greeting."""
    body = msgspec.json.encode(message)
    return _HEAD.pack(MAGIC, len(body)) + body


def read_greeting(data: bytes, kind: type[G]) -> tuple[G, bytes] | None:
    """A greeting and the bytes after it; None if it is incomplete. Raises StreamBroken."""
    if not MAGIC.startswith(data[:4]):
        raise StreamBroken(f"{data[:8]!r} is not the greeting of a replica")
    if len(data) < _HEAD.size:
        return None
    size = _HEAD.unpack_from(data)[1]
    if not 0 < size <= LARGEST_GREETING:
        raise StreamBroken(f"a greeting of {size} bytes")
    end = _HEAD.size + size
    if len(data) < end:
        return None
    try:
        return msgspec.json.decode(data[_HEAD.size : end], type=kind), data[end:]
    except msgspec.DecodeError as error:
        raise StreamBroken(f"a greeting that cannot be read: {error}") from error


def epochs_of(message: Hello | Welcome) -> Epochs:
    """The epochs in a greeting. Raises StreamBroken."""
    try:
        return Epochs(message.epochs)
    except BadEpochs as error:
        raise StreamBroken(str(error)) from error


class ReportReader:
    """Extracts a replica's reports from the incoming bytes; the newest counts."""

    __slots__ = ("_rest",)

    def __init__(self, rest: bytes = b"") -> None:
        self._rest = rest

    def feed(self, data: bytes) -> int | None:
        """The last complete report; None if there is none."""
        data = self._rest + data
        whole_size = len(data) - len(data) % REPORT.size
        self._rest = data[whole_size:]
        last: int | None = REPORT.unpack_from(data, whole_size - REPORT.size)[0] if whole_size else None
        return last


class SliceReader:
    """Extracts a leader's slices from the incoming bytes: (log offset, confirmed, bytes) of each piece of a slice."""

    __slots__ = ("_confirmed", "_head", "_offset", "_remaining")

    def __init__(self) -> None:
        self._head = b""
        self._offset = self._remaining = self._confirmed = 0

    def feed(self, data: bytes) -> list[tuple[int, int, memoryview]]:
        """The pieces that arrived, in order; a heartbeat has no bytes. Raises StreamBroken."""
        pieces: list[tuple[int, int, memoryview]] = []
        view, at = memoryview(data), 0
        while at < len(view):
            if self._remaining:
                piece = view[at : at + self._remaining]
                pieces.append((self._offset, self._confirmed, piece))
                self._offset += len(piece)
                self._remaining -= len(piece)
                at += len(piece)
                continue
            missing = SLICE.size - len(self._head)
            self._head += view[at : at + missing]
            at += missing
            if len(self._head) == SLICE.size:
                self._offset, self._remaining, self._confirmed = SLICE.unpack(self._head)
                self._head = b""
                if self._offset < 0 or self._confirmed < 0 or not 0 <= self._remaining <= LARGEST_SLICE:
                    raise StreamBroken(f"the leader announces {self._remaining} bytes for log offset {self._offset}")
                if not self._remaining:
                    pieces.append((self._offset, self._confirmed, view[:0]))
        return pieces
