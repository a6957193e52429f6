"""Brokers that were slow or failed, and until when they are avoided. Pure: the time is an argument.

Each answer has a latency; a table maps it to a time of avoidance (RocketMQ's: under 550 ms none, 550 ms 30 s,
then up to 10 minutes from 15 s on). A failed try counts as 30 s of latency. The table decides nothing unless the
producer's `latency_faults` is on, which it is not by default, as in RocketMQ.

Java: client/latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_LATENCIES_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
DEFAULT_AVOIDANCES_MS = (0, 0, 30000, 60000, 120000, 180000, 600000)
FAILED_LATENCY_MS = 30000  # what a try that failed counts as


@dataclass(slots=True)
class Fault:
    """What is known about one broker."""

    broker_name: str
    latency_ms: float
    available_from: float


class LatencyFaults:
    """The table of one producer; times are milliseconds of any one clock."""

    def __init__(
        self, latencies_ms: Sequence[int] = DEFAULT_LATENCIES_MS, avoidances_ms: Sequence[int] = DEFAULT_AVOIDANCES_MS
    ) -> None:
        if len(latencies_ms) != len(avoidances_ms) or list(latencies_ms) != sorted(latencies_ms):
            raise ValueError("latency table: one avoidance for each latency, latencies ascending")
        self._latencies = list(latencies_ms)
        self._avoidances = list(avoidances_ms)
        self._faults: dict[str, Fault] = {}
        self._turn = 0

    def avoidance_ms(self, latency_ms: float) -> int:
        """For how long a broker of this latency is avoided."""
        index = bisect_right(self._latencies, latency_ms)
        return self._avoidances[index - 1] if index else 0

    def answered(self, broker_name: str, latency_ms: float, now: float) -> None:
        """A try was answered after this latency."""
        self._faults[broker_name] = Fault(broker_name, latency_ms, now + self.avoidance_ms(latency_ms))

    def failed(self, broker_name: str, latency_ms: float, now: float) -> None:
        """A try failed: the broker is avoided as if it had taken 30 s."""
        self._faults[broker_name] = Fault(broker_name, latency_ms, now + self.avoidance_ms(FAILED_LATENCY_MS))

    def available(self, broker_name: str, now: float) -> bool:
        """Whether the broker may be chosen."""
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.available_from

    def least_bad(self, now: float) -> str | None:
        """One broker of the better half, in turn; None if no broker has been noted."""
        ranked = sorted(
            self._faults.values(),
            key=lambda fault: (now < fault.available_from, fault.latency_ms, fault.available_from),
        )
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)].broker_name

    def forget(self, broker_name: str) -> None:
        """Forget a broker that no longer has a writable queue."""
        self._faults.pop(broker_name, None)
