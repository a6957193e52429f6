"""A leader's log on its way to one replica, with up to where it is confirmed.

While the kernel takes all of it, no task is involved: what a turn appended is handed over within `appended.advance`,
which costs a call of the system; a task switch for each replica and turn would cost more than that. The task says how
far the log is confirmed where no bytes go that would say so, and gives signs of life. It takes over where something has
to be waited for: room in the kernel's buffers, or a part of the log that is no longer in memory.

Java: store/ha/autoswitch/AutoSwitchHAConnection.java (WriteSocketService) of 5.x
"""

from __future__ import annotations

import trio

from rocketlet.failover.in_sync import InSync
from rocketlet.failover.stream_codec import SLICE
from rocketlet.remoting.transport import ByteStream
from rocketlet.store.errors import StoreError
from rocketlet.store.log_slices import SliceGone
from rocketlet.store.message_store import MessageStore
from rocketlet.store.watermark import Waiter, Watermark

BEAT_SECONDS = 0.5  # between signs of life
_SLICE = 128 << 10
_TELL_CONFIRMED_SECONDS = 0.01  # unless there are bytes to send anyway
_SLICES_A_TURN = 4


class LogFeed:
    """One connection's; nobody else writes to its stream."""

    def __init__(self, stream: ByteStream, store: MessageStore, in_sync: InSync, sent: int) -> None:
        """`sent`: up to where the replica has the log."""
        assert store.confirmed is not None
        self._stream = stream
        self._appended, self._confirmed = store.appended, store.confirmed
        self._slices = store.slices
        self._in_sync = in_sync
        self._sent = sent
        self._told = -1
        self._rest: bytes | memoryview = b""  # of what the kernel did not take at once
        self._waiter: Waiter | None = None
        self._failure: Exception | None = None
        self._must_wait = False
        self._news = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Until cancelled. Raises trio.BrokenResourceError, SliceGone, StoreError, OSError."""
        try:
            while True:
                await self._catch_up()
                self._must_wait = False
                self._waiter = self._appended.call_at(self._sent + 1, self._grown)
                await self._say_what_is_confirmed()
                self._waiter.cancel()
        finally:
            if self._waiter is not None:
                self._waiter.cancel()

    def _grown(self) -> None:
        """There is more of the log: hand it over, and wait for more; or have the task do so."""
        try:
            for _ in range(_SLICES_A_TURN):
                piece = self._slices.now(self._sent, min(_SLICE, self._appended.value - self._sent))
                if piece is None or not self._hand_over(piece):
                    break
                if self._sent >= self._appended.value:
                    self._waiter = self._appended.call_at(self._sent + 1, self._grown)
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError, SliceGone, StoreError, OSError) as error:
            self._failure = error
        self._must_wait = True
        self._news.unpark_all()

    def _hand_over(self, piece: bytes | memoryview) -> bool:
        """Send a piece of the log, or just how far it is confirmed; whether the kernel has taken all of it."""
        self._told = self._in_sync.confirmed
        data = b"".join((SLICE.pack(self._sent, len(piece), self._told), piece))
        self._sent += len(piece)
        taken = self._stream.send_now(data)
        self._rest = memoryview(data)[taken:] if taken < len(data) else b""
        return not self._rest

    async def _catch_up(self) -> None:
        """Send up to the end of the log, waiting for what has to be waited for."""
        in_turn = 0
        while True:
            if self._failure is not None:
                raise self._failure
            if self._rest:
                await self._stream.send_all(self._rest)
                self._rest = b""
            if self._sent >= self._appended.value:
                return
            most = min(_SLICE, self._appended.value - self._sent)
            piece = self._slices.now(self._sent, most)
            self._hand_over(piece if piece is not None else await self._slices.wait(self._sent, most))
            in_turn += 1
            if in_turn >= _SLICES_A_TURN:
                in_turn = 0
                await trio.lowlevel.checkpoint()

    async def _say_what_is_confirmed(self) -> None:
        """Until something has to be waited for."""
        while True:
            if not self._is_behind():
                await self._news_or(BEAT_SECONDS, self._confirmed)
            has_grown = self._is_behind()
            if has_grown and not self._must_wait:
                await self._news_or(_TELL_CONFIRMED_SECONDS)
            if self._must_wait:
                return
            if has_grown and not self._is_behind():
                continue  # the next bytes have said so
            if not self._hand_over(b""):
                return

    def _is_behind(self) -> bool:
        """Whether the replica was told less of what is confirmed than it could have."""
        return self._told < min(self._in_sync.confirmed, self._sent)

    async def _news_or(self, seconds: float, grows: Watermark | None = None) -> None:
        """Wait so long, or until something has to be waited for, or that watermark grows."""
        waiter = grows.call_at(grows.value + 1, self._news.unpark_all) if grows is not None else None
        try:
            with trio.move_on_after(seconds):
                await self._news.park()
        finally:
            if waiter is not None:
                waiter.cancel()
