"""The progress of each delay level: level -> offset of its next message. On disk: delayOffset.json. Pure.

Java: broker/schedule/ScheduleMessageService.java (offsetTable), common/DelayOffsetSerializeWrapper.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

log = logging.getLogger("rocketlet.broker.delay_offsets")

MAX_LEVEL: Final = 1024  # of levels in a file that another program wrote


class DelayOffsets:
    """The progress of all levels. `version` grows with every change."""

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self.version = 0

    def get(self, level: int) -> int:
        """The next offset to deliver; 0 for a level that has never delivered anything."""
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self.version += 1

    def to_body(self) -> dict[str, dict[int, int]]:
        """The body of request 45 and of delayOffset.json."""
        return {"offsetTable": dict(sorted(self._offsets.items()))}

    def load(self, body: Any) -> None:
        """Load delayOffset.json; invalid entries are logged and skipped."""
        table = body.get("offsetTable") if isinstance(body, dict) else None
        for key, value in (table if isinstance(table, dict) else {}).items():
            try:
                level, offset = int(key), int(value)
            except (TypeError, ValueError):
                level, offset = 0, 0
            if 0 < level <= MAX_LEVEL and offset >= 0:
                self._offsets[level] = offset
            else:
                log.warning("delayOffset.json: the entry %r: %r is left out", key, value)
        self.version += 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(level, next offset) of every known level."""
        return iter(sorted(self._offsets.items()))

    def __repr__(self) -> str:
        return f"<DelayOffsets {self._offsets}>"
