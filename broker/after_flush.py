"""What a file may claim of the log: nothing that the disk does not have.

Offsets tell that something was done: a delayed message delivered, a transaction ended. They are saved in small files,
flushed at once, while the record that was made for it may wait for its flush. A power cut between the two would leave
an offset that speaks of a record which is gone, and the message with it. So whoever keeps such an offset passes it
through here: of the values noted, the latest whose log is flushed is handed on.

Java: nothing of the kind; there such messages are lost
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from rocketlet.store.message_store import MessageStore

T = TypeVar("T")


class AfterFlush(Generic[T]):
    """Calls `take`, which only takes note, with values in the order in which they were noted; some are left out."""

    def __init__(self, store: MessageStore, take: Callable[[T], None]) -> None:
        self._store = store
        self._take = take
        self._latest: tuple[int, T] | None = None
        self._waited: tuple[int, T] | None = None

    def note(self, value: T) -> None:
        """The value holds for everything that is in the log now."""
        self._latest = (self._store.log.end, value)
        if self._waited is None:
            self._wait()

    def _wait(self) -> None:
        """Hand the latest on, or wait for its flush. After a failed flush nothing is handed on any more."""
        noted, self._latest = self._latest, None
        if noted is None:
            return
        end, value = noted
        flushed = self._store.flushed
        if flushed.value >= end:
            self._take(value)
        elif flushed.failure is None:
            self._waited = noted
            flushed.call_at(end, self._reached)

    def _reached(self) -> None:
        noted, self._waited = self._waited, None
        assert noted is not None
        end, value = noted
        if self._store.flushed.value >= end:
            self._take(value)
            self._wait()
