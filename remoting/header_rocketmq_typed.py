"""The two hot ROCKETMQ headers, a send by letters and a pull, straight into their structs.

A loop over the 13 fields of a send costs 2.5 µs, and converting numbers as much again; this costs 0.8. Two headers of
one producer differ in few fields: the time, the properties, the queue. So the map is cut at those fields; the runs
between them are read by the loop once and cached by their bytes:

    send   [a b c d e f]  g  h  i  [j k l m n ...]            only in the order in which Java writes them
    pull   [consumerGroup topic queueId]  queueOffset  [maxMsgNums sysFlag]  commitOffset  [suspendTimeoutMillis ...]

Invariant: the result is exactly what the loop would have found. Each run must consist of complete fields, with each
expected name once and no other that could override it; the lengths of the fields between runs are trusted. So nobody
can present one topic to the signature check, which covers all fields, and another to the handler. In any other case
(another order, a missing or duplicate field, a run too long to be cached) the result is None, and the loop takes over.

A signature differs from send to send, so it is cut off the last run, whose last field it is when our client signs. If
the rest consists of complete fields, the loop would have found the same ones and then the signature.

Java: remoting/protocol/FastCodesHeader.java, common/protocol/header/SendMessageRequestHeaderV2.java (encode)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from rocketlet.remoting.errors import FrameError, HeaderError
from rocketlet.remoting.header_rocketmq import decode_map, encode_map
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.pulling import PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2

# What peers can make us cache: five tables of this many runs of this many bytes, 10 MiB at most.
CACHED_RUNS = 4096
LONGEST_RUN = 512

_TIME = b"\0\x01g\0\0\0\x0d"  # 13 digits, until the year 2286
_PROPERTIES = b"\0\x01i"
_ONE_DIGIT_FLAGS = {b"\0\x01h\0\0\0\x01%d" % flag: flag for flag in range(10)}  # hardly any client sets others
_SIGNATURE = b"\0\x09Signature\0\0\0\x1c"  # and 28 characters of base64
_SIGNATURE_LENGTH = 28
_middle_of_send = struct.Struct(">13s8s3sI").unpack_from  # the time, the complete flag, the head of the properties
_QUEUE_OFFSET = b"\0\x0bqueueOffset\0\0\0"
_COMMIT_OFFSET = b"\0\x0ccommitOffset\0\0\0"


def read_send(raw: bytes, at: int) -> SendMessageHeaderV2 | None:
    """Requires: `at` is where the map begins, and it ends with `raw`."""
    time = raw.find(_TIME, at)
    try:
        born, flag, properties_head, size = _middle_of_send(raw, time + 7)
        begin = time + 35
        end = begin + size
        if time < 0 or end > len(raw) or properties_head != _PROPERTIES:
            return None
        (queue, topic, group, default_topic, default_queues, sys_flag), _ = _send_openings[raw[at:time]]
        (times, unit, most_times, batch, broker), _ = _send_closings[_without_signature(raw[end:])[0]]
        return SendMessageHeaderV2(
            queue,
            topic,
            group,
            default_topic,
            default_queues,
            sys_flag,
            int(born),
            _ONE_DIGIT_FLAGS[flag],
            raw[begin:end].decode(),
            times,
            unit,
            most_times,
            batch,
            broker,
        )
    except (_UnusualLayout, ValueError, KeyError, struct.error):
        return None


def read_claim(raw: bytes, at: int) -> tuple[str, bytes, bytes] | None:
    """For a signed send: the account, the signature, and the signed content, which is the values in the order of the
    names.

    Requires: `at` is where the map begins, and it ends with `raw`.
    """
    time = raw.find(_TIME, at)
    try:
        born, flag, properties_head, size = _middle_of_send(raw, time + 7)
        begin = time + 35
        end = begin + size
        if time < 0 or end > len(raw) or properties_head != _PROPERTIES or flag not in _ONE_DIGIT_FLAGS:
            return None
        closing, signature = _without_signature(raw[end:])
        _, opening_values = _send_openings[raw[at:time]]
        _, (account, first_values, last_values) = _send_closings[closing]
        if not signature or not signature.isascii() or not account:
            return None
        properties = raw[begin:end]
        if not properties.isascii():
            properties.decode()  # what is no text is signed as the general way reads it
        return account, signature, b"".join((first_values, opening_values, born, flag[-1:], properties, last_values))
    except (_UnusualLayout, UnicodeDecodeError, KeyError, struct.error):
        return None


def read_pull(raw: bytes, at: int) -> PullMessageHeader | None:
    """Requires: `at` is where the map begins, and it ends with `raw`."""
    first = raw.find(_QUEUE_OFFSET, at)
    second = raw.find(_COMMIT_OFFSET, first + 17)
    try:
        middle = first + 17 + raw[first + 16]
        end = second + 18 + raw[second + 17]
        offset, committed = raw[first + 17 : middle], raw[second + 18 : end]
        if first < 0 or middle > second or end > len(raw) or len(offset) > 18 or len(committed) > 18:
            return None
        queue, topic, group = _pull_openings[raw[at:first]]
        max_count, sys_flag = _pull_middles[raw[middle:second]]
        suspend, subscription, version, kind, broker = _pull_closings[raw[end:]]
        return PullMessageHeader(
            queue,
            int(offset),
            max_count,
            topic,
            group,
            sys_flag,
            int(committed),
            suspend,
            subscription,
            version,
            kind,
            broker,
        )
    except (_UnusualLayout, ValueError, IndexError):
        return None


class _UnusualLayout(Exception):
    """A run that differs from what Java writes there."""


class _Runs(dict[bytes, Any]):
    """The meaning of each run of fields. A lookup decodes a new run; raises _UnusualLayout."""

    def __init__(self, read: Callable[[dict[str, str]], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, run: bytes) -> Any:
        if len(run) > LONGEST_RUN:
            raise _UnusualLayout
        try:
            fields = decode_map(run, 0, len(run))
            if len(encode_map(fields)) != len(run):  # a duplicate field, or invalid UTF-8
                raise _UnusualLayout
            meaning = self._read(fields)
        except (FrameError, HeaderError):
            raise _UnusualLayout from None
        if len(self) >= CACHED_RUNS:
            self.clear()
        self[run] = meaning
        return meaning


def _need(holds: bool) -> None:
    if not holds:
        raise _UnusualLayout


def _without_signature(closing: bytes) -> tuple[bytes, bytes]:
    """The run without the signature field, if that comes last, and the signature."""
    if not closing.startswith(_SIGNATURE, -_SIGNATURE_LENGTH - len(_SIGNATURE)):
        return closing, b""
    return closing[: -_SIGNATURE_LENGTH - len(_SIGNATURE)], closing[-_SIGNATURE_LENGTH:]


def _read_send_opening(fields: dict[str, str]) -> tuple[tuple[int, str, str, str, int, int], bytes]:
    """The fields, and the values as signed."""
    _need("".join(fields) == "abcdef")
    h = from_ext(SendMessageHeaderV2, fields)
    meaning = h.queueId, h.topic, h.producerGroup, h.defaultTopic, h.defaultTopicQueueNums, h.sysFlag
    return meaning, "".join(fields.values()).encode()


def _read_send_closing(
    fields: dict[str, str],
) -> tuple[tuple[int, bool, int | None, bool, str | None], tuple[str, bytes, bytes]]:
    """The fields; the account, and what is signed before and after the fields from a to i."""
    _need(fields.keys().isdisjoint("abcdefghi"))
    h = from_ext(SendMessageHeaderV2, {**fields, "e": "0"})
    names = sorted(fields)
    first_values = "".join(fields[name] for name in names if name < "a").encode()
    last_values = "".join(fields[name] for name in names if name > "i").encode()
    # A name that sorts among the letters (`bname`) would belong between their values: the general path handles it.
    is_plain = all(name < "a" or name > "i" for name in names) and not any(name.startswith("_") for name in names)
    account = fields.get("AccessKey", "") if is_plain and "Signature" not in fields else ""
    return (h.reconsumeTimes, h.unitMode, h.maxReconsumeTimes, h.batch, h.brokerName), (
        account,
        first_values,
        last_values,
    )


_ANY_PULL = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "0"}  # required fields that are not in a run
_PULL_FRONT = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset")


def _read_pull_opening(fields: dict[str, str]) -> tuple[int, str, str]:
    _need(tuple(fields) == _PULL_FRONT[:3])
    h = from_ext(PullMessageHeader, {**_ANY_PULL, **fields})
    return h.queueId, h.topic, h.consumerGroup


def _read_pull_middle(fields: dict[str, str]) -> tuple[int, int]:
    _need(tuple(fields) == _PULL_FRONT[4:6])
    h = from_ext(PullMessageHeader, {**_ANY_PULL, **fields})
    return h.maxMsgNums, h.sysFlag


def _read_pull_closing(fields: dict[str, str]) -> tuple[int, str | None, int, str | None, str | None]:
    _need(fields.keys().isdisjoint((*_PULL_FRONT, "maxMsgBytes")))
    h = from_ext(PullMessageHeader, {**_ANY_PULL, **fields})
    return h.suspendTimeoutMillis, h.subscription, h.subVersion, h.expressionType, h.bname


_send_openings, _send_closings = _Runs(_read_send_opening), _Runs(_read_send_closing)
_pull_openings, _pull_middles, _pull_closings = (
    _Runs(_read_pull_opening),
    _Runs(_read_pull_middle),
    _Runs(_read_pull_closing),
)
