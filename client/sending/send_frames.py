"""The frame of a send, made from a template: what is the same for all sends of a producer to a topic is written once.

A send's JSON header has thirteen fields of which five change. One format of bytes takes 0.6 µs; the way through a
header struct, a map and the encoder takes 7. Headers of other types, and clients with hooks (which may add fields), go
that general way by `command`.

Java: client/impl/MQClientAPIImpl.java#sendMessage, common/protocol/header/SendMessageRequestHeaderV2.java
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

import msgspec

from rocketlet.common import fastjson
from rocketlet.remoting.command import ONEWAY, VERSION, Command, HeaderType
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode

Parts: TypeAlias = tuple[int, int, int, int, str, bytes, bool]
"""What changes from send to send: queue id, system flag, time of birth, flag, properties, body, whether one-way."""

_lengths = Struct(">II").pack
_quoted = msgspec.json.Encoder().encode


class SendTemplate:
    """Makes the frames of one producer group's sends to one topic."""

    __slots__ = ("_code", "_format", "_header", "_oneway_format", "batch", "topic")

    def __init__(self, group: str, topic: str, default_topic: str, default_queues: int, *, batch: bool = False) -> None:
        self.topic = topic
        self.batch: SendTemplate | None = None
        """The same for batches; None for a template of batches."""
        if not batch:
            self.batch = SendTemplate(group, topic, default_topic, default_queues, batch=True)
        self._code = int(RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2)
        self._header = SendMessageHeaderV2(
            queueId=0,
            topic=topic,
            producerGroup=group,
            defaultTopic=default_topic,
            defaultTopicQueueNums=default_queues,
            batch=batch,
        )
        fixed = to_ext(self._header)
        for letter in "efghi":
            del fixed[letter]
        ext = fastjson.dumps(fixed).replace(b"%", b"%%")[:-1]
        head = b'{"code":%d,"extFields":%b,' % (self._code, ext)
        changing = b'"e":"%d","f":"%d","g":"%d","h":"%d","i":%b},'
        tail = b'"flag":%d,"language":"PYTHON","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
        self._format = head + changing + tail % (0, VERSION)
        self._oneway_format = head + changing + tail % (ONEWAY, VERSION)

    def frame(self, opaque: int, parts: Parts) -> bytes:
        """The whole frame, with a JSON header."""
        queue_id, sys_flag, born, flag, properties, body, oneway = parts
        form = self._oneway_format if oneway else self._format
        header = form % (queue_id, sys_flag, born, flag, _quoted(properties), opaque)
        return b"".join((_lengths(4 + len(header) + len(body), len(header)), header, body))

    def command(self, header_type: HeaderType, parts: Parts) -> Command:
        """The same as a command, for other header types and for hooks; the connection gives it its opaque."""
        queue_id, sys_flag, born, flag, properties, body, oneway = parts
        ext = to_ext(self._header)
        ext |= {"e": str(queue_id), "f": str(sys_flag), "g": str(born), "h": str(flag), "i": properties}
        return Command(self._code, flag=ONEWAY if oneway else 0, ext=ext, body=body, header_type=header_type)
