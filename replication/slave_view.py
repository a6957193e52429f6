"""What a master knows of one slave from its connection: where it began, what it was sent, what it has reported. Pure.

A connection's first report is a request, not an acknowledgement: any peer that can connect can send any number. Only
bytes that were sent on this connection can be acknowledged on it, so no report, whether forged, stale or of another
log, makes a message count as replicated that the slave was not sent. Java checks only later reports, and keeps one
maximum over all slaves there ever were.

Invariants: `asked <= acked <= sent` or, where a slave that has nothing was given a later begin, `acked` is 0 until it
has something; `sent` advances only by what was written to the connection; none of this outlives the connection.

Java: store/ha/HAConnection.java (slaveRequestOffset, slaveAckOffset)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.errors import RocketletError


class NotServed(RocketletError):
    """This slave is not served: the text says why, and what can be done about it."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A master's log when a slave connects: its begin and end, and where its last file begins."""

    begin: int
    end: int
    last_file: int


def start_for(slave_end: int, log: LogSpan, *, last_file_only: bool) -> int:
    """Where the stream begins to a slave that reports `slave_end` as its end. Raises NotServed."""
    if slave_end < 0:
        raise NotServed(f"its first report is {slave_end}, which is not a log offset")
    if slave_end == 0:
        return log.last_file if last_file_only else log.begin
    if slave_end > log.end:
        raise NotServed(
            f"its log ends at {slave_end} and this master's at {log.end}: it has what this master never had or has"
            " lost. Promote it, or empty it with `rocketlet store reseed`"
        )
    if slave_end < log.begin:
        raise NotServed(
            f"its log ends at {slave_end}, and this master's begins at {log.begin}: the part in between is deleted"
            " here. Empty it with `rocketlet store reseed`"
        )
    return slave_end


class SlaveView:
    """One connection. `report` takes the slave's reports, `sending` the bytes sent to it."""

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
        if not self._owes_ack:
            self.progressed_at = now
        self.sent += size

    def report(self, offset: int, now: float) -> str:
        """Take a report. Returns what is wrong with it, or an empty text."""
        if not self.acked <= offset <= self.sent:
            return f"it reports {offset}, but had reported {self.acked} and was sent up to {self.sent}"
        if offset > self.acked:
            self.acked = offset
            self.progressed_at = now
        return ""

    @property
    def confirmed(self) -> int:
        """The offset up to which this connection's bytes are confirmed; 0 if none is."""
        return self.acked if self.acked > self.start else 0

    def stalled_for(self, now: float) -> float:
        """How long it has owed an acknowledgement of what it was sent; 0 if it owes none."""
        return now - self.progressed_at if self._owes_ack else 0.0

    @property
    def _owes_ack(self) -> bool:
        return self.sent > max(self.acked, self.start)

    def __repr__(self) -> str:
        return f"<SlaveView began at {self.start}, sent {self.sent}, acked {self.acked}>"
