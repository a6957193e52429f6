"""The version of a table that name servers and slaves have copies of: a time and a counter, compared for equality.

Java: common/DataVersion.java
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Two tables with one version are taken for equal, so every change needs a next one."""

    timestamp: int
    counter: int = 0

    def next(self, now: int) -> DataVersion:
        return DataVersion(now, self.counter + 1)

    def to_body(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp}


def read_version(body: Any) -> DataVersion | None:
    """The version in a file or body; None where there is none that makes sense."""
    if not isinstance(body, dict):
        return None
    try:
        return DataVersion(int(body.get("timestamp") or 0), int(body.get("counter") or 0))
    except (TypeError, ValueError):
        return None
