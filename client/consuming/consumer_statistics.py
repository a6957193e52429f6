"""Consumption rates per topic over the last full minute, as the answer to GET_CONSUMER_RUNNING_INFO shows them.

Java: client/stat/ConsumerStatsManager.java
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rocketlet.common.clock import WallClock
from rocketlet.remoting.protocol.inspection import ConsumeStatus

_WINDOW_MS = 60_000
_BUCKET_MS = 10_000


@dataclass(slots=True)
class _Bucket:
    begin: int
    pulls: int = 0
    pulled: int = 0
    pull_ms: float = 0.0
    consumed: int = 0
    failed: int = 0
    consume_ms: float = 0.0


@dataclass(slots=True)
class _Topic:
    buckets: deque[_Bucket] = field(default_factory=deque)
    failed: int = 0


class ConsumerStatistics:
    """Counts in buckets of 10 s; six of them are the window."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, count: int, elapsed_ms: float = 0.0) -> None:
        """A pull found messages."""
        bucket = self._bucket(topic)
        bucket.pulls += 1
        bucket.pulled += count
        bucket.pull_ms += elapsed_ms

    def consumed(self, topic: str, count: int, failed: int, elapsed_ms: float) -> None:
        """A listener came back."""
        bucket = self._bucket(topic)
        bucket.consumed += count
        bucket.failed += failed
        bucket.consume_ms += elapsed_ms
        self._topics[topic].failed += failed

    def _bucket(self, topic: str) -> _Bucket:
        now = self._clock()
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = _Topic()
        buckets = counts.buckets
        if not buckets or now - buckets[-1].begin >= _BUCKET_MS:
            buckets.append(_Bucket(now))
        while buckets[0].begin < now - _WINDOW_MS:
            buckets.popleft()
        return buckets[-1]

    def of(self, topic: str) -> ConsumeStatus:
        """The last minute of a topic. Rates are per second, times averages in milliseconds."""
        if topic not in self._topics:
            return ConsumeStatus()
        self._bucket(topic)
        counts = self._topics[topic]
        seconds = _WINDOW_MS / 1000
        pulls = sum(bucket.pulls for bucket in counts.buckets)
        consumed = sum(bucket.consumed for bucket in counts.buckets)
        failed = sum(bucket.failed for bucket in counts.buckets)
        return ConsumeStatus(
            pullTPS=sum(bucket.pulled for bucket in counts.buckets) / seconds,
            pullRT=sum(bucket.pull_ms for bucket in counts.buckets) / max(1, pulls),
            consumeOKTPS=consumed / seconds,
            consumeFailedTPS=failed / seconds,
            consumeRT=sum(bucket.consume_ms for bucket in counts.buckets) / max(1, consumed + failed),
            consumeFailedMsgs=counts.failed,
        )
