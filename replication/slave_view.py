"""What a master knows of one slave by its connection: where it began, what was sent to it, what it says it has. Pure.

A connection's first report is a request, not an acknowledgement: any peer that can connect can send any number. Only
bytes that were sent on this connection can be acknowledged on it, so no report whatever, forged, stale or of another
log, makes a message count as replicated that the slave was not sent. Java checks later reports alone, and keeps one
maximum over all slaves there ever were.

Invariants: `asked <= acked <= sent` or, where a slave that has nothing was given a later begin, `acked` is 0 until it
has something; `sent` is only ever advanced by what was written to the connection; nothing of it outlives the
connection.

Java: store/ha/HAConnection.java (slaveRequestOffset, slaveAckOffset)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.errors import RocketletError


class NotFed(RocketletError):
    """This slave gets nothing: the text says why, and what can be done about it."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """What a master has when a slave asks: the first and the end of its log, and where its last file begins."""

    begin: int
    end: int
    last_file: int


def start_for(asked: int, log: LogSpan, *, last_file_only: bool) -> int:
    """Where the stream to a slave begins that reports `asked` as its end. Raises NotFed."""
    if asked < 0:
        raise NotFed(f"its first report is {asked}, which is no log offset")
    if asked == 0:
        return log.last_file if last_file_only else log.begin
    if asked > log.end:
        raise NotFed(
            f"its log ends at {asked} and this master's at {log.end}: it has what this master never had or has lost."
            " Promote it, or empty it with `rocketlet store reseed`"
        )
    if asked < log.begin:
        raise NotFed(
            f"its log ends at {asked}, and this master's begins at {log.begin}: what lies between is deleted here."
            " Empty it with `rocketlet store reseed`"
        )
    return asked


class SlaveView:
    """One connection. `report` takes what the slave says, `sending` what it is sent."""

    __slots__ = ("acked", "asked", "progressed_at", "sent", "start")

    def __init__(self, asked: int, start: int, now: float) -> None:
        self.asked = asked
        self.start = start
        self.acked = asked
        self.sent = start
        self.progressed_at = now
        """When it last acknowledged something, or was first sent what it has not acknowledged."""

    def sending(self, size: int, now: float) -> None:
        """So many bytes are about to be written to it."""
        if not self._owes:
            self.progressed_at = now
        self.sent += size

    def report(self, offset: int, now: float) -> str:
        """Take a report; what is wrong with it, empty where nothing is."""
        if not self.acked <= offset <= self.sent:
            return f"it reports {offset}, but had reported {self.acked} and was sent up to {self.sent}"
        if offset > self.acked:
            self.acked = offset
            self.progressed_at = now
        return ""

    @property
    def confirmed(self) -> int:
        """Up to where this connection's bytes are confirmed; 0 where none of them is."""
        return self.acked if self.acked > self.start else 0

    def stalled_for(self, now: float) -> float:
        """For how long it has owed an acknowledgement of what it was sent; 0 where it owes none."""
        return now - self.progressed_at if self._owes else 0.0

    @property
    def _owes(self) -> bool:
        return self.sent > max(self.acked, self.start)

    def __repr__(self) -> str:
        return f"<SlaveView began at {self.start}, sent {self.sent}, acked {self.acked}>"
