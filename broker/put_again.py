"""Storing a stored message again: delivered after its delay, retried, committed, checked once more.

The copy has the body, flag, hosts and birth of its original, and the changes it needs. Its tags code and index
keys follow from its properties, as those of any message do.

Java: store/MessageExtBrokerInner.java as broker/schedule, broker/processor and broker/transaction fill it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rocketlet.common.java_numbers import INT32_MAX, utf8_hash
from rocketlet.common.message_properties import find, index_keys
from rocketlet.common.message_record import Record
from rocketlet.store.message import Put

FilterBits: TypeAlias = Callable[[str, bytes], bytes]
"""What the SQL92 groups of a topic say of these properties, for the queue's extension; empty where nobody asks."""


def put_again(record: Record, topic: str, queue_id: int, properties: bytes | None = None) -> Put:
    """The message of a record, to be stored elsewhere, with other properties if given."""
    text = record.properties if properties is None else properties
    return Put(
        topic,
        queue_id,
        record.body,
        text,
        tags_code(text),
        index_keys(text),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
    )


def tags_code(properties: bytes) -> int:
    """The tags code of a queue entry; 0 without tags."""
    tags = find(properties, b"TAGS")
    return utf8_hash(tags) if tags else 0


def queue_id_of(text: str) -> int | None:
    """The queue in REAL_QID; None if it is invalid."""
    if not (text.isascii() and text.isdigit()) or len(text) > 10:  # int() of thousands of digits raises
        return None
    queue_id = int(text)
    return queue_id if queue_id <= INT32_MAX else None
