"""One line for each change that a user made or attempted: JSON, to stderr or a file.

Java: rocketmq-dashboard's aspect/admin (which logs to its own file)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

log = logging.getLogger("rocketlet.console.audit")


class Audit:
    """`file` is appended to; without one the lines go to the log."""

    def __init__(self, file: str = "") -> None:
        self._file = file

    def check(self) -> None:
        """Raises OSError if a line could not be written: then nothing must be changed."""
        if self._file:
            with open(self._file, "a", encoding="utf-8"):
                pass

    def write(
        self, now_ms: int, user: str, role: str, action: str, subject: Mapping[str, object], outcome: str
    ) -> None:
        """Write a line. Raises OSError if the file cannot be written."""
        line = json.dumps(
            {
                "time": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
                "who": user,
                "role": role,
                "action": action,
                **subject,
                "outcome": outcome,
            },
            ensure_ascii=False,
            default=str,
        )
        if self._file:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        else:
            log.warning("%s", line)
