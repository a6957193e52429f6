"""Values for tests: complete and valid by default, with the fields that matter given by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rocketlet.common import message_properties
from rocketlet.common.host import pack_host
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import Record, encode
from tests.support.virtual_time import START_MS

HOST = pack_host("127.0.0.1", 10911)


def record(number: int = 0, *, properties: dict[str, str] | None = None, **fields: Any) -> Record:
    """The record of a message `number` of topic T, queue 0; its body and key contain its number."""
    own_properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key-{number}"} if properties is None else properties
    whole = Record(
        topic="T",
        queue_id=0,
        queue_offset=number,
        log_offset=0,
        body=f"body {number}".encode(),
        properties=message_properties.encode(own_properties).encode(),
        born_timestamp=START_MS,
        born_host=HOST,
        store_timestamp=START_MS,
        store_host=HOST,
    )
    return replace(whole, **fields)


def log_of(*records: Record, start: int = 0) -> bytes:
    """Consecutive records, each with its resulting log offset."""
    log = bytearray()
    for each in records:
        log += encode(replace(each, log_offset=start + len(log)))
    return bytes(log)


def received(offset: int = 0, **fields: Any) -> ReceivedMessage:
    """A message as a consumer of topic T, queue 0 of broker-a, sees it."""
    whole = ReceivedMessage(
        topic="T",
        body=f"body {offset}".encode(),
        queue=MessageQueue("T", "broker-a", 0),
        queue_offset=offset,
        log_offset=1000 * offset,
        message_id=f"{offset:032X}",
        offset_message_id=offset_message_id(HOST, 1000 * offset),
        born_timestamp=START_MS,
        born_host="127.0.0.1:50000",
        store_timestamp=START_MS,
        store_host="127.0.0.1:10911",
        reconsume_times=0,
        tags=None,
        keys=(),
        flag=0,
        sys_flag=0,
        properties={},
        prepared_transaction_offset=0,
    )
    return replace(whole, **fields)
