"""A gRPC client's message as brokers accept it: checked, with its properties as text. Pure.

Java: proxy/grpc/v2/producer/SendMessageActivity.java, proxy/grpc/v2/common/GrpcValidator.java
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as props
from rocketlet.common import topic as names
from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic_attributes import DELAY, FIFO, MIXED, NORMAL, TRANSACTION
from rocketlet.proxy.call import Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code

BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
# System properties: refused when sent, and not shown as user properties when received.
SYSTEM_NAMES = props.RESERVED | {
    props.TIMER_DELIVER_MS,
    props.TIMER_DELAY_MS,
    props.TIMER_DELAY_SEC,
    props.TIMER_OUT_MS,
    props.TIMER_DELETE,
    props.POP_CK,
    props.FIRST_POP_TIME,
    props.SHARDING_KEY,
    props.START_DELIVER_TIME,
    props.INNER_NUM,
    props.CRC32,
    BORN_HOST,
    BORN_TIMESTAMP,
    TRACE_CONTEXT,
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_ROLL_LABEL",
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
    "POP_RETRY_TOPIC",
}
MAX_MESSAGES = 128
MAX_HEAD_BYTES = 128 << 10
"""Of a message without its body."""

_MAX_FIELDS = 2000
_BODY = 4  # its number in a message

_control = re.compile("[\x00-\x1f\x7f-\x9f]").search


@dataclass(slots=True)
class Outgoing:
    """A checked message."""

    message_id: str
    properties: str
    body: bytes
    sys_flag: int
    born_timestamp: int
    type: str
    message_group: str = ""
    deliver_ms: int = 0


def check_topic(name: str) -> None:
    """Raises Refusal for topics that clients may not name."""
    try:
        names.check_topic_name(name)
    except names.InvalidName as error:
        raise Refusal(Code.ILLEGAL_TOPIC, str(error)) from None
    if names.is_system_topic(name):
        raise Refusal(Code.ILLEGAL_TOPIC, f"the topic {name} belongs to the system")


def check_group(name: str) -> None:
    """Raises Refusal."""
    try:
        names.check_group_name(name)
    except names.InvalidName as error:
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if names.is_system_group(name):
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, f"the group {name} belongs to the system")


def outgoing(message: m.Message, config: ProxyConfig, born_host: str, now_ms: int) -> Outgoing:
    """Raises Refusal."""
    system = message.system_properties
    body = message.body
    if not body:
        raise Refusal(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > config.max_message_size:
        raise Refusal(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body has {len(body)} bytes, maxMessageSize={config.max_message_size}"
        )
    if not system.message_id.strip():
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, "the message has no id")
    properties: dict[str, str] = {}
    size = 0
    user = message.user_properties
    if user:
        properties.update(user)
        size = _check_user(properties, config)
    if system.HasField("tag"):
        properties[props.TAGS] = tag = system.tag
        size += len(tag.encode())
        if not tag.strip() or "|" in tag or _control(tag):
            raise Refusal(Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:80]!r} is blank, or has '|' or a control character")
    keys = system.keys
    if keys:
        joined = " ".join(keys)
        size += len(joined.encode())
        if _control(joined) or not all(key.strip() for key in keys):
            raise Refusal(Code.ILLEGAL_MESSAGE_KEY, "a key is blank or has a control character")
        properties[props.KEYS] = joined
    if size > config.max_user_property_size:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{size} bytes of properties, tag and keys, maxUserPropertySize={config.max_user_property_size}",
        )
    if _control(system.message_id):
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, "the message id has a control character")
    properties[props.UNIQ_KEY] = system.message_id
    sys_flag = flags.COMPRESSED if system.body_encoding == m.GZIP else 0
    result = Outgoing(system.message_id, "", body, sys_flag, _ms(system.born_timestamp) or now_ms, NORMAL)
    _take_type(message, properties, result, config, now_ms)
    if born_host:
        properties[BORN_HOST] = born_host
    if system.HasField("trace_context") and not _control(system.trace_context):
        properties[TRACE_CONTEXT] = system.trace_context
    result.properties = props.encode(properties)
    if len(result.properties) > props.MAX_SIZE:
        raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"more than {props.MAX_SIZE} bytes of properties")
    return result


def _check_user(properties: Mapping[str, str], config: ProxyConfig) -> int:
    """The size of the user's properties."""
    if len(properties) > config.user_property_max_num:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties)} properties, userPropertyMaxNum={config.user_property_max_num}",
        )
    size = 0
    for name, value in properties.items():
        if name in SYSTEM_NAMES or not name or _control(name) or _control(value):
            fault = "belongs to the system" if name in SYSTEM_NAMES else "is empty or has a control character"
            raise Refusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name[:80]!r} {fault}")
        size += len(name.encode()) + len(value.encode())
    return size


def _take_type(
    message: m.Message, properties: dict[str, str], result: Outgoing, config: ProxyConfig, now_ms: int
) -> None:
    """The message type, derived from the properties set."""
    system = message.system_properties
    if system.HasField("message_group"):
        group = system.message_group
        if not group.strip() or len(group.encode()) >= config.max_message_group_size or _control(group):
            raise Refusal(
                Code.ILLEGAL_MESSAGE_GROUP,
                f"the message group {group[:80]!r} is blank, has a control character, or is not shorter than"
                f" maxMessageGroupSize={config.max_message_group_size}",
            )
        properties[props.SHARDING_KEY] = result.message_group = group
        result.type = FIFO
    if system.HasField("delivery_timestamp"):
        deliver = _ms(system.delivery_timestamp)
        if deliver - now_ms > config.max_delay_time_mills:
            raise Refusal(
                Code.ILLEGAL_DELIVERY_TIME,
                f"the delivery time is {deliver - now_ms} ms ahead, maxDelayTimeMills={config.max_delay_time_mills}",
            )
        properties[props.TIMER_DELIVER_MS] = str(max(deliver, 0))
        result.deliver_ms = max(deliver, 1)
        result.type = DELAY
    if system.message_type == m.TRANSACTION:
        properties[props.TRAN_MSG] = "true"
        properties[props.PGROUP] = message.topic.name
        result.sys_flag |= flags.PREPARED
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            if not 0 <= seconds <= config.max_transaction_recovery_second:
                raise Refusal(Code.BAD_REQUEST, f"the first check of the transaction would be after {seconds} s")
            if seconds:
                properties[props.CHECK_IMMUNITY_TIME] = str(seconds)
        result.type = TRANSACTION


def check_type(expected: str, actual: str) -> None:
    """Check that a topic of this type accepts such a message. Raises Refusal."""
    if expected not in (actual, MIXED):
        raise Refusal(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"the topic takes {expected} messages, and this one is {actual}"
        )


def choose_queue(queues: Sequence[MessageQueue], message_group: str, turn: int) -> MessageQueue:
    """The queue of a message: those of one group go to the same one, as long as the number of queues does not
    change."""
    if message_group:
        return queues[consistent_hash(string_hash(message_group), len(queues))]
    return queues[turn % len(queues)]


def consistent_hash(key: int, buckets: int) -> int:
    """The bucket of a key, by Lamping and Veach's jump hash: changing the number of buckets moves as few keys as
    possible.

    With the generator and rounding of Java's proxy, so that both choose the same queue.
    """
    state = key & 0xFFFFFFFFFFFFFFFF
    bucket = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((bucket + 1) / (((state >> 33) + 1) / 2147483648.0))
        if following >= buckets:
            return bucket
        bucket = following


def check_bytes(data: bytes) -> None:
    """Check that a large send is large by its bodies: protobuf turns every empty field into 80 bytes. Raises
    Refusal."""
    for count, (_, at, end) in enumerate(_fields(data, 0, len(data)), 1):
        if count > MAX_MESSAGES:
            raise Refusal(Code.BAD_REQUEST, f"more than {MAX_MESSAGES} messages in one request")
        fields = _fields(data, at, end)
        if len(fields) > _MAX_FIELDS:
            raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"more than {_MAX_FIELDS} fields in a message")
        body = max((stop - start for number, start, stop in fields if number == _BODY), default=0)
        if end - at - body > MAX_HEAD_BYTES:
            raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes beside the body")


def _fields(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """The number of each field and the place of its value, as far as readable; at most one more than we accept."""
    result: list[tuple[int, int, int]] = []
    while at < end and len(result) <= _MAX_FIELDS:
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            result.append((number, at, min(at + size, end)))
            at += size
        elif kind == 0:
            start = at
            _, at = _varint(data, at, end)
            result.append((number, start, at))
        elif kind in (1, 5):
            result.append((number, at, at))
            at += 8 if kind == 1 else 4
        else:
            break
    return result


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return number, at


def _ms(time: m.Timestamp) -> int:
    return time.seconds * 1000 + time.nanos // 1_000_000
