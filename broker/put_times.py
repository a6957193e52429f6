"""How long storing sends took: counts by duration, for the broker's runtime info and for metrics.

A send is measured from the turn that read it to the turn's answer; with SYNC_FLUSH to the flush. Sends of one turn take
equally long, so the clock is read once per turn. Pure: durations and the time are arguments.

Java: store/StoreStatsService.java (putMessageDistributeTime, putLatency99)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

# In milliseconds, each bound included.
BOUNDS = (
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
    2000.0, 3000.0, 4000.0, 5000.0, 10000.0, float("inf"),
)  # fmt: skip
# RocketMQ's names, and our last bound for each.
NAMED = {
    "<=0ms": 1.0,
    "0~10ms": 10.0,
    "10~50ms": 50.0,
    "50~100ms": 100.0,
    "100~200ms": 200.0,
    "200~500ms": 500.0,
    "500ms~1s": 1000.0,
    "1~2s": 2000.0,
    "2~3s": 3000.0,
    "3~4s": 4000.0,
    "4~5s": 5000.0,
    "5~10s": 10000.0,
    "10s~": float("inf"),
}
WINDOW_MS = 60_000


class PutTimes:
    """Counts since the start, and those of the last full minute."""

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS)
        self._counts_before = list(self._counts)  # at the beginning of this minute
        self._minute = list(self._counts)  # in the last one
        self._minute_start: int | None = None
        self._known_sends = 0
        self.longest_ms = 0.0
        self.total_ms = 0.0

    def turn(self, sends: int, ms: float) -> None:
        """A turn has ended. `sends`: how many the broker has answered at once since it started."""
        new, self._known_sends = sends - self._known_sends, sends
        if new > 0:
            self.note(new, ms)

    def note(self, count: int, ms: float) -> None:
        """Count sends of one duration."""
        self._counts[bisect_left(BOUNDS, ms)] += count
        self.total_ms += count * ms
        if ms > self.longest_ms:
            self.longest_ms = ms

    def tick(self, now: int) -> None:
        """Every ten seconds."""
        if self._minute_start is None:
            self._minute_start = now
        elif now - self._minute_start >= WINDOW_MS:
            self._minute = [
                count - count_before for count, count_before in zip(self._counts, self._counts_before, strict=True)
            ]
            self._counts_before, self._minute_start = list(self._counts), now

    def minute(self) -> Mapping[str, int]:
        """RocketMQ's thirteen counts of the last full minute."""
        counts, begin = {}, 0
        for name, bound in NAMED.items():
            end = BOUNDS.index(bound) + 1
            counts[name] = sum(self._minute[begin:end])
            begin = end
        return counts

    def percentile(self, share: float) -> float:
        """In milliseconds: the bound below which that share of the last full minute's sends were. 0 if there were
        none."""
        target = share * sum(self._minute)
        cumulative = 0
        for bound, count in zip(BOUNDS, self._minute, strict=True):
            cumulative += count
            if count and cumulative >= target:
                return min(bound, self.longest_ms)
        return 0.0

    def since_start(self) -> Mapping[float, int]:
        """Counts by bound."""
        return dict(zip(BOUNDS, self._counts, strict=True))
