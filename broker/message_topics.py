"""The topic of the message at a log offset, for the permission of requests that name only the offset (33, 36).

Java: none
"""

from __future__ import annotations

from functools import partial

from rocketlet.broker.at_once import at_once
from rocketlet.common.message_properties import REAL_TOPIC, decode_bytes
from rocketlet.common.message_record import RecordError, decode
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.lookup import Lookup


def topics_at(store: Lookup, offset: int) -> list[str]:
    """The topic; for a delayed message its destination. Empty if no message begins there. Raises Later."""
    raw = at_once(store, partial(store.record_at, offset))
    if raw is None:
        return []
    try:
        record = decode(raw)
    except RecordError:
        return []
    real = decode_bytes(record.properties).get(REAL_TOPIC) if record.topic == SCHEDULE_TOPIC else None
    return [real or record.topic]
