"""Which topic a message at an offset of the log belongs to: what a request needs a permission on that names only the
offset (33, 36).

Java: none
"""

from __future__ import annotations

from typing import Protocol

from rocketlet.common.message_properties import REAL_TOPIC, decode_bytes
from rocketlet.common.message_record import RecordError, decode
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.remoting.frame_codec import Buffer


class Records(Protocol):
    """The log."""

    def record_at(self, log_offset: int) -> Buffer | None: ...


class MessageTopics:
    """Reads the record: who asks for it will, too."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def of_message(self, offset: int) -> list[str]:
        """The topic; of a delayed message the one that it waits for. Empty where no message begins there."""
        raw = self._records.record_at(offset)
        if raw is None:
            return []
        try:
            record = decode(raw)
        except RecordError:
            return []
        real = decode_bytes(record.properties).get(REAL_TOPIC) if record.topic == SCHEDULE_TOPIC else None
        return [real or record.topic]
