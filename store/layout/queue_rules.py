"""Which entry a record gets in its consume queue: what dispatch, recovery, a slave and Spark have to agree on.

The tags code of an entry is the hash of the message's tags, with two exceptions: on the delay topic it is the time of
delivery, and a record that stands for a lost message gets `LOST`.

Java: store/CommitLog.java#checkMessageAndReturnSize
"""

from __future__ import annotations

from rocketlet.common.message_properties import find
from rocketlet.common.message_record import FIXED, Outline
from rocketlet.common.settings import SettingsError
from rocketlet.common.subscription import tags_code
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.layout.consume_queue_entry import LOST

# The prepared offset, which no log has, of a record that replaced a damaged one. On disk: DO NOT CHANGE.
LOST_MARK = -0x4C4F53545245434F

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY_DIGITS = 6

_SCHEDULE = SCHEDULE_TOPIC.encode()
# So many messages of a queue may be missing between two records of it, however small the log: 20 MB of entries.
_MISSING_AT_MOST = 1 << 20


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of delay level 1, 2, ...; raises SettingsError."""
    delays = []
    for word in text.split():
        number, unit = word[:-1], word[-1]
        if unit not in _UNITS or not (number.isascii() and number.isdigit()):
            raise SettingsError(f"messageDelayLevel={text}: {word} is no delay; write 10s, 5m, 2h or 1d")
        if len(number) > _DELAY_DIGITS:
            raise SettingsError(f"messageDelayLevel={text}: {word} is longer than any message is kept")
        delays.append(int(number) * _UNITS[unit])
    if not delays:
        raise SettingsError("messageDelayLevel: at least one level is needed, as in 1s 5s 10s")
    return tuple(delays)


def delay_of(delays: tuple[int, ...], level: int) -> int:
    """Milliseconds of a delay level; a level above the last is the last, an unknown one a second."""
    return delays[min(level, len(delays)) - 1] if level > 0 else 1000


def delivery_time(store_timestamp: int, level: bytes | None, delays: tuple[int, ...]) -> int | None:
    """When a message on the delay topic is due; `level` is its DELAY property. None where that is no level."""
    if level is None or not level.isdigit() or int(level) <= 0:
        return None
    return store_timestamp + delay_of(delays, int(level))


def entry_code(record: Outline, tags: bytes | None, delays: tuple[int, ...]) -> int:
    """The tags code of a record's entry."""
    if record.prepared_offset == LOST_MARK:
        return LOST
    if record.topic == _SCHEDULE:
        due = delivery_time(record.store_timestamp, find(record.properties, b"DELAY"), delays)
        if due is not None:
            return due
    return tags_code(tags) if tags else 0


def most_missing(log_bytes: int) -> int:
    """How many messages of one queue that much of the log can have held, and lost.

    No checksum covers a queue offset, so a flipped bit can claim any number of lost messages. A record that claims more
    than this keeps the next place in its queue, and what follows goes on from there.
    """
    return max(_MISSING_AT_MOST, log_bytes // FIXED)
