"""A time stamp as a calendar's day and hour. Stamps come from peers and from damaged files too, so any number has one.

Java: (none: java.util.Date takes any number)
"""

from __future__ import annotations

from datetime import datetime, tzinfo

_LAST = 253_402_214_400_000  # in the year 9999, whatever the time zone


def moment_of(ms: int, zone: tzinfo | None = None) -> datetime:
    """Local time, or a zone's. What lies outside of what `datetime` can hold becomes the nearest that it can."""
    return datetime.fromtimestamp(min(max(ms, 0), _LAST) / 1000, zone)
