"""Pre-encoded requests, made by hand on purpose: a benchmark of the broker must not pay for a client's encoding.

The fields of the send are those of RocketMQ's own benchmark producer: a key, a unique key, a tag, WAIT.
"""

from __future__ import annotations

import json
import struct
import time

SEND_V2 = 310
SEND_BATCH = 320
PULL = 11
POP = 200050
BATCH_ACK = 200151
HEADER_TYPES = {"json": 0, "binary": 1, "msgpack": 2}


def frame(header_type: str, code: int, ext: dict[str, str], body: bytes = b"", opaque: int = 1) -> bytes:
    """One whole request frame in any of the three header types."""
    header = _header(header_type, code, ext, opaque, body)
    return (
        struct.pack(">II", 4 + len(header) + len(body), HEADER_TYPES[header_type] << 24 | len(header)) + header + body
    )


def _header(header_type: str, code: int, ext: dict[str, str], opaque: int, body: bytes) -> bytes:
    if header_type == "binary":
        fields = b"".join(
            struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
            for key, value in ext.items()
        )
        return struct.pack(">hBhiii", code, 0, 399, opaque, 0, 0) + struct.pack(">i", len(fields)) + fields
    if header_type == "json":
        head = {
            "code": code,
            "extFields": ext,
            "flag": 0,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": 399,
        }
        return json.dumps(head, separators=(",", ":")).encode()
    from rocketlet.remoting.command import Command, HeaderType
    from rocketlet.remoting.frame_codec import encode

    encoded = encode(Command(code=code, opaque=opaque, ext=ext, body=body, header_type=HeaderType.MSGPACK))
    size = int.from_bytes(encoded[5:8], "big")
    return encoded[8 : 8 + size]


def send_frame(header_type: str, topic: str, queue_id: int, body: bytes, properties: str | None = None) -> bytes:
    """A send of one message by code 310."""
    if properties is None:
        properties = "KEYS\1OrderID188\2UNIQ_KEY\x017F000001ABCD18B4AAC2000000000000\2WAIT\1true\2TAGS\1TagA"
    ext = {
        "a": "BenchmarkGroup",
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return frame(header_type, SEND_V2, ext, body)


def batch_frame(header_type: str, topic: str, queue_id: int, bodies: list[bytes]) -> bytes:
    """A batch by code 320."""
    items = b""
    for number, body in enumerate(bodies):
        properties = f"UNIQ_KEY\x017F000001ABCD18B4AAC2{number:012X}\2TAGS\1TagA".encode()
        items += struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body)) + body
        items += struct.pack(">h", len(properties)) + properties
    ext = {
        "a": "BenchmarkGroup",
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "WAIT\1true",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    return frame(header_type, SEND_BATCH, ext, items)


def pull_frame(header_type: str, topic: str, queue_id: int, offset: int, count: int) -> bytes:
    """A pull that carries its own subscription and does not wait, so that no heartbeat is needed."""
    ext = {
        "consumerGroup": "BenchmarkConsumer",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return frame(header_type, PULL, ext)


def pop_frame(header_type: str, group: str, topic: str, queue_id: int, count: int, opaque: int = 1) -> bytes:
    """A pop that waits for a minute, with the fields that RocketMQ's own client sends."""
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "maxMsgNums": str(count),
        "invisibleTime": "600000",
        "pollTime": "60000",
        "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return frame(header_type, POP, ext, opaque=opaque)


def batch_ack_frame(header_type: str, acks: list[dict[str, object]], opaque: int = 2) -> bytes:
    """One batch of acks: the fields of RocketMQ's BatchAck, for each queue."""
    body = json.dumps({"brokerName": "broker-a", "acks": acks}, separators=(",", ":")).encode()
    return frame(header_type, BATCH_ACK, {}, body, opaque)
