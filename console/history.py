"""The history of a day: a ring of samples per series, taken by the console itself, so that no other service is needed.

Series are few and of fixed length: totals, and the topics and groups that were busiest when first seen. A restarted
console starts again. Pure: values and times are arguments.

Java: rocketmq-dashboard's task/DashboardCollectTask.java
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping

DAY_SECONDS = 86_400
MAX_SERIES = 400
_MISSING = float("nan")


class History:
    """Samples by name, each `every` seconds."""

    def __init__(self, every: float) -> None:
        self.every = every
        self._length = int(DAY_SECONDS / every)
        self._times: deque[float] = deque(maxlen=self._length)
        self._series: dict[str, deque[float]] = {}

    def add(self, now: float, values: Mapping[str, float]) -> None:
        """Add one sample of everything; series not reported this time are missing."""
        for name in values:
            if name not in self._series and self._has_room(values):
                self._series[name] = deque([_MISSING] * len(self._times), maxlen=self._length)
        self._times.append(now)
        for name, samples in list(self._series.items()):
            samples.append(values.get(name, _MISSING))
            if len(samples) == self._length and all(value != value for value in samples):
                del self._series[name]  # it was not reported for a day

    def _has_room(self, values: Mapping[str, float]) -> bool:
        """Whether a series can be added: one that is no longer reported makes room for it."""
        if len(self._series) < MAX_SERIES:
            return True
        silent = next(
            (name for name, samples in self._series.items() if name not in values and samples[-1] != samples[-1]), ""
        )
        return self._series.pop(silent, None) is not None

    def series(self, name: str) -> tuple[array[float], array[float]]:
        """Times and values of existing samples, oldest first."""
        times, values = array("d"), array("d")
        for time, value in zip(self._times, self._series.get(name, ()), strict=False):
            if value == value:
                times.append(time)
                values.append(value)
        return times, values

    def latest(self, name: str) -> float:
        """The newest value; 0 if there is none."""
        values = self._series.get(name)
        return values[-1] if values and values[-1] == values[-1] else 0.0

    def __len__(self) -> int:
        return len(self._times)
