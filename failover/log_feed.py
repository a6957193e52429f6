"""Sends a leader's log to one replica, with the offset up to which it is confirmed.

While the kernel takes everything, no task is involved: what a turn appended is written within `appended.advance`, which
costs a system call; a task switch per replica and turn would cost more. The task sends the confirmed offset when no
bytes carry it, and heartbeats. It takes over when something has to be waited for: room in the kernel's buffers, or a
part of the log that is no longer in memory.

Java: store/ha/autoswitch/AutoSwitchHAConnection.java (WriteSocketService) of 5.x
"""

from __future__ import annotations

import trio

from rocketlet.failover.in_sync import InSync
from rocketlet.failover.stream_codec import SLICE
from rocketlet.remoting.frame_codec import Buffer
from rocketlet.remoting.transport import ByteStream
from rocketlet.store.errors import StoreError
from rocketlet.store.log_slices import LogSlices, SliceGone
from rocketlet.store.message_store import MessageStore
from rocketlet.store.watermark import Waiter, Watermark

BEAT_SECONDS = 0.5  # between heartbeats
_SLICE = 128 << 10
_CONFIRM_SECONDS = 0.03  # unless there are bytes to send; each such pause costs 50 µs
_SLICES_A_TURN = 4


class FramedSlices:
    """Slices with their heads. Replicas that keep up get the same ones, so the latest is kept and made once."""

    def __init__(self, slices: LogSlices) -> None:
        self._slices = slices
        self._last_key = (-1, 0, 0)
        self._last = b""

    def now(self, offset: int, max_size: int, confirmed: int) -> bytes | None:
        """See `LogSlices.now`; raises what that raises."""
        key = (offset, max_size, confirmed)
        if key != self._last_key:
            piece = self._slices.now(offset, max_size)
            if piece is None:
                return None
            self._last, self._last_key = frame(offset, confirmed, piece), key
        return self._last


def frame(offset: int, confirmed: int, piece: Buffer) -> bytes:
    """A slice with its head."""
    return b"".join((SLICE.pack(offset, len(piece), confirmed), piece))


class LogFeed:
    """One connection's; nobody else writes to its stream."""

    def __init__(
        self, stream: ByteStream, store: MessageStore, slices: FramedSlices, in_sync: InSync, sent: int
    ) -> None:
        """`sent`: the offset up to which the replica has the log."""
        assert store.confirmed is not None
        self._stream = stream
        self._appended, self._confirmed = store.appended, store.confirmed
        self._framed = slices
        self._slices = store.slices
        self._in_sync = in_sync
        self._sent = sent
        self._sent_confirmed = -1
        self._rest: bytes | memoryview = b""  # what the kernel did not take at once
        self._waiter: Waiter | None = None
        self._failure: Exception | None = None
        self._must_wait = False
        self._wakeup = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Until cancelled. Raises trio.BrokenResourceError, SliceGone, StoreError, OSError."""
        try:
            while True:
                await self._catch_up()
                self._must_wait = False
                self._waiter = self._appended.call_at(self._sent + 1, self._on_growth)
                await self._send_confirmed()
                self._waiter.cancel()
        finally:
            if self._waiter is not None:
                self._waiter.cancel()

    def _on_growth(self) -> None:
        """The log has grown: write the new part, or have the task do so."""
        try:
            for _ in range(_SLICES_A_TURN):
                data = self._next_frame()
                if data is None or not self._hand_over(data):
                    break
                if self._sent >= self._appended.value:
                    self._waiter = self._appended.call_at(self._sent + 1, self._on_growth)
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError, SliceGone, StoreError, OSError) as error:
            self._failure = error
        self._must_wait = True
        self._wakeup.unpark_all()

    def _next_frame(self) -> bytes | None:
        self._sent_confirmed = self._in_sync.confirmed
        return self._framed.now(self._sent, self._next_size(), self._sent_confirmed)

    def _next_size(self) -> int:
        return min(_SLICE, self._appended.value - self._sent)

    def _hand_over(self, data: bytes) -> bool:
        """Send a slice. Returns whether the kernel took all of it."""
        self._sent += len(data) - SLICE.size
        taken = self._stream.send_now(data)
        self._rest = memoryview(data)[taken:] if taken < len(data) else b""
        return not self._rest

    async def _catch_up(self) -> None:
        """Send up to the end of the log, waiting where necessary."""
        in_turn = 0
        while True:
            if self._failure is not None:
                raise self._failure
            if self._rest:
                await self._stream.send_all(self._rest)
                self._rest = b""
            if self._sent >= self._appended.value:
                return
            data = self._next_frame()
            if data is None:
                data = frame(self._sent, self._sent_confirmed, await self._slices.wait(self._sent, self._next_size()))
            self._hand_over(data)
            in_turn += 1
            if in_turn >= _SLICES_A_TURN:
                in_turn = 0
                await trio.lowlevel.checkpoint()

    async def _send_confirmed(self) -> None:
        """Send the confirmed offset, until something has to be waited for."""
        while True:
            if not self._is_behind():
                await self._wait_for_change(BEAT_SECONDS, self._confirmed)
            has_grown = self._is_behind()
            if has_grown and not self._must_wait:
                await self._wait_for_change(_CONFIRM_SECONDS)
            if self._must_wait:
                return
            if has_grown and not self._is_behind():
                continue  # the next bytes carried it
            self._sent_confirmed = self._in_sync.confirmed
            if not self._hand_over(frame(self._sent, self._sent_confirmed, b"")):
                return

    def _is_behind(self) -> bool:
        """Whether the replica has been sent an older confirmed offset than it could have."""
        return self._sent_confirmed < min(self._in_sync.confirmed, self._sent)

    async def _wait_for_change(self, seconds: float, watermark: Watermark | None = None) -> None:
        """Wait until that timeout, until there is something to wait for, or until the watermark grows."""
        waiter = watermark.call_at(watermark.value + 1, self._wakeup.unpark_all) if watermark is not None else None
        try:
            with trio.move_on_after(seconds):
                await self._wakeup.park()
        finally:
            if waiter is not None:
                waiter.cancel()
