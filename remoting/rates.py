"""Rate limits on requests by account or address: one token bucket each.

A bucket holds one second's worth, so a peer that was silent may send that much at once. Full buckets carry no
information and are dropped. Pure: the time is an argument.

Java: none
"""

from __future__ import annotations

_MAX_BUCKETS = 100_000


class Rates:
    """`take` is called for each request; a limit of 0 costs only the call."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}  # by name: tokens, and when they were counted
        self.refused = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, limit: int, now: float) -> bool:
        """Whether one more request of `name` is within `limit` a second."""
        tokens, counted = self._buckets.get(name, (float(limit), now))
        tokens = min(float(limit), tokens + (now - counted) * limit)
        if tokens < 1.0:
            self.refused += 1
            return False
        if name not in self._buckets and len(self._buckets) >= _MAX_BUCKETS:
            self._forget_idle(now)
        self._buckets[name] = (tokens - 1.0, now)
        return True

    def _forget_idle(self, now: float) -> None:
        """A bucket that nothing was taken from for a second is full again."""
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if now - bucket[1] < 1.0}
        if len(self._buckets) >= _MAX_BUCKETS:
            self._buckets.clear()  # this limit is not meant for so many peers at once
