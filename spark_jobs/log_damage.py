"""Damages of a split, with their place in the log.

Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketlet.common.message_record import Fault
from rocketlet.spark_jobs.commit_log import LogDamage, Split, read_split
from rocketlet.store.layout.log_scan import Damage

if TYPE_CHECKING:
    from rocketlet.spark_jobs.message_columns import MessageBatch


def damages_of(split: Split) -> list[LogDamage]:
    """All damages of a split, in order; records that fail their `__CRC32#` property among them."""
    from rocketlet.spark_jobs.message_columns import MessageBatch

    data, result = read_split(split, verify_body=True)
    damages = [in_log(split, damage) for damage in result.damages]
    damages += property_damages(split, MessageBatch(data, result.heads_in(data)))
    return sorted(damages, key=lambda damage: damage.log_offset)


def in_log(split: Split, damage: Damage) -> LogDamage:
    """A damage that was found in the bytes of a split."""
    place = split.segment.base + split.start + damage.at
    return LogDamage(split.segment.path, place, damage.size, damage.fault.value)


def property_damages(split: Split, batch: MessageBatch) -> list[LogDamage]:
    """The records of a split that do not match their `__CRC32#`; they can be read, and a broker serves them."""
    heads, reason = batch.heads, Fault.PROPERTY_CRC.value
    return [
        LogDamage(split.segment.path, int(heads.log_offset[row]), int(heads.size[row]), reason)
        for row in batch.bad_property_crcs()
    ]
