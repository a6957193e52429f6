"""A broker's record as a gRPC message. Pure.

Java: proxy/grpc/v2/common/GrpcConverter.java
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from rocketlet.common import host
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as props
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import Record
from rocketlet.proxy.service.outgoing import BORN_HOST, SYSTEM_NAMES, TRACE_CONTEXT
from rocketlet.proxy.wire import messages as m


def incoming(record: Record, properties: Mapping[str, str], topic: str, receipt_handle: str | None) -> m.Message:
    """The message of a delivery, or of a transaction check, which has no handle."""
    system = m.SystemProperties(
        message_id=properties.get(props.UNIQ_KEY) or offset_message_id(record.store_host, record.log_offset),
        body_digest=m.Digest(type=m.MD5, checksum=hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=m.GZIP if record.sys_flag & flags.COMPRESSED else m.IDENTITY,
        message_type=_type_of(properties),
        born_timestamp=_time(record.born_timestamp),
        born_host=properties.get(BORN_HOST) or host.host_text(record.born_host),
        store_timestamp=_time(record.store_timestamp),
        store_host=host.host_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=record.reconsume_times + 1,
    )
    if receipt_handle is not None:
        system.receipt_handle = receipt_handle
    if props.TAGS in properties:
        system.tag = properties[props.TAGS]
    if props.KEYS in properties:
        system.keys.extend(properties[props.KEYS].split())
    if props.SHARDING_KEY in properties:
        system.message_group = properties[props.SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    deliver = _deliver_ms(record, properties)
    if deliver:
        system.delivery_timestamp.CopyFrom(_time(deliver))
    return m.Message(
        topic=m.Resource(name=topic),
        user_properties={name: value for name, value in properties.items() if name not in SYSTEM_NAMES},
        system_properties=system,
        body=record.body,
    )


def _type_of(properties: Mapping[str, str]) -> int:
    if properties.get(props.TRAN_MSG) == "true":
        return m.TRANSACTION
    if props.TIMER_DELIVER_MS in properties or props.DELAY in properties or props.TIMER_OUT_MS in properties:
        return m.DELAY
    return m.FIFO if props.SHARDING_KEY in properties else m.NORMAL


def _deliver_ms(record: Record, properties: Mapping[str, str]) -> int:
    for name in (props.TIMER_DELIVER_MS, props.TIMER_OUT_MS):
        text = properties.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
    return 0


def _time(ms: int) -> m.Timestamp:
    return m.Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
