"""The bytes of a leader on their way into the log, and from there into queues and index.

An acknowledgement promises only the log, so it does not wait for queues and index. These are filed for several turns
together, which costs much less per record. When the connection ends, `file` must be called before anything else touches
the replica: `Replica.drop_rest` would take unfiled records, acknowledged ones, for the rest of a partial one.

With SYNC_FLUSH every turn is filed: a flush reaches only as far as what is filed, and costs more than filing.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica

_MAX_UNFILED = 2048  # records: takes 3 ms to file, 15 where no two are alike
_BATCH_SECONDS = 0.06  # between two filings, while bytes keep coming


class Intake:
    """One connection's."""

    def __init__(self, store: MessageStore, replica: Replica, settle: Callable[[], None]) -> None:
        self._store = store
        self._replica = replica
        self._settle = settle
        self._is_batching = not store.config.is_sync_flush
        self._confirmed = 0
        self._filed_at = 0.0
        self._has_written = False  # in this turn

    def write(self, piece: memoryview) -> None:
        """Write bytes at the end of the log. Raises DiskFull, NoRecord."""
        while piece:
            self._has_written = True
            part = piece[: self._replica.room_in_file()]
            self._replica.write(part)
            piece = piece[len(part) :]

    @property
    def end(self) -> int:
        """The end of the last whole record, filed or not."""
        return self._replica.whole_end

    def confirm(self, end: int) -> None:
        """Call it after the writes of a turn, with the offset up to which the leader's log is confirmed: file now, or
        with a later turn. Raises DiskFull, NoRecord.

        There is a later turn: once a leader has no more bytes it tells what is confirmed, and that alone is filed at
        once. By then it waits for nothing, so filing keeps nobody.
        """
        self._confirmed = max(self._confirmed, end)
        self._replica.make_room_ahead()
        is_early = trio.current_time() < self._filed_at + _BATCH_SECONDS
        may_wait = self._is_batching and self._has_written and is_early and self._replica.unfiled < _MAX_UNFILED
        self._has_written = False
        if not may_wait:
            self.file()

    def file(self) -> None:
        """File the whole records, those that are confirmed into queues and index. Raises DiskFull, NoRecord."""
        self._filed_at = trio.current_time()
        self._replica.file()
        self._store.confirm(min(self._confirmed, self._store.log.end), self._settle)
