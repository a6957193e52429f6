"""Reading and making records in tests, beyond what the code itself needs (`common/message_record.py`)."""

from __future__ import annotations

from rocketlet.common.message_record import CRC_PROPERTY, CRC_PROPERTY_SIZE, Buffer, Record, body_crc, decode, encode


def decode_all(buffer: Buffer) -> list[Record]:
    """The records of a pull's body, one after another. Raises RecordError at the first incomplete one."""
    records = []
    at, end = 0, len(buffer)
    while at < end:
        record = decode(buffer, at, end)
        records.append(record)
        at += record.size
    return records


def with_property_crc(record: Record) -> bytes:
    """The record's bytes with a `__CRC32#` property behind the others, as 5.2+ writes it on request."""
    properties = record.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    room = bytes(CRC_PROPERTY_SIZE)
    raw = encode(Record(
        record.topic, record.queue_id, record.queue_offset, record.log_offset, record.body, properties + room,
        record.flag, record.sys_flag, record.born_timestamp, record.born_host, record.store_timestamp,
        record.store_host, record.reconsume_times, record.prepared_offset,
    ))[:-CRC_PROPERTY_SIZE]  # fmt: skip
    return raw + CRC_PROPERTY + (b"%010d" % body_crc(raw))[::-1] + b"\x02"
