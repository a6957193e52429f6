"""Message traces: one message a second or so to the trace topic, telling what was sent and consumed, when and how.

A record is text: its kind (Pub, SubBefore, SubAfter, EndTransaction) and fields, joined by 0x01 and ended by 0x02. The
trace message bears the ids and keys of all messages it tells of as its own keys, so that a query by message id finds
it. Traces are best effort: what cannot be sent is logged and dropped, and the newest are dropped when too many wait.

Java: client/trace/TraceDataEncoder.java, AsyncTraceDispatcher.java, client/trace/hook/
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import count

import trio

from rocketlet.client.errors import ClientError
from rocketlet.client.hooks import ConsumeHookContext, SendContext
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.talking.session import Session
from rocketlet.common import message_properties as names
from rocketlet.common.clock import WallClock
from rocketlet.common.message import Message, ReceivedMessage

log = logging.getLogger("rocketlet.client.trace")

_EVERY = 1.0
_AT_ONCE = 100  # records a trace message holds
_MOST_WAITING = 10_000
_DEFAULT_REGION = "DefaultRegion"
_NORMAL, _HALF, _DELAYED = 0, 1, 3
_SUCCESS, _EXCEPTION = 0, 2


class Tracer:
    """The traces of one producer or consumer; a hook of both kinds. Records come from any thread."""

    def __init__(self, session: Session, topic: str, clock: WallClock) -> None:
        self._topic = topic
        self._clock = clock
        self._numbers = count(1)
        self._waiting: deque[tuple[str, tuple[str, ...]]] = deque()
        self._session = session

    async def run(self) -> None:
        """Send what has gathered every second, until cancelled."""
        while True:
            await trio.sleep(_EVERY)
            await self.flush()

    async def flush(self) -> None:
        """Send what has gathered."""
        producer = InnerProducer(self._session, "_INNER_TRACE_PRODUCER")
        while self._waiting:
            records = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            keys = dict.fromkeys(key for _, some in records for key in some if key)
            body = "".join(text for text, _ in records).encode()
            try:
                await producer.send(Message(self._topic, body, keys=tuple(keys)), 0, 0)
            except ClientError as error:
                log.warning("%d message traces were not sent: %s", len(records), error)

    def _add(self, fields: list[object], keys: tuple[str, ...]) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(("\x01".join(map(str, fields)) + "\x02", keys))

    # ---- sending

    def before_send(self, context: SendContext) -> None:
        """Nothing yet: the record is written when the outcome is known."""

    def after_send(self, context: SendContext) -> None:
        """Pub."""
        message, result = context.message, context.result
        if message.topic == self._topic:
            return
        kind = _DELAYED if message.delay_level else _NORMAL
        if result is not None and result.state is not None:
            kind = _HALF
        keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
        self._add(
            [
                "Pub",
                context.born,
                (result.region_id if result is not None else None) or _DEFAULT_REGION,
                context.group,
                message.topic,
                context.message_id,
                message.tags or "",
                keys,
                result.queue.broker_name if result is not None else "",
                len(message.body),
                round(context.elapsed_ms),
                kind,
                result.offset_message_id if result is not None else "",
                "true" if result is not None else "false",
            ],
            (context.message_id, *keys.split()),
        )

    # ---- consuming

    def before_consume(self, context: ConsumeHookContext) -> None:
        """SubBefore, one record a message."""
        context.notes["request"] = request = f"{self._clock():x}-{next(self._numbers):x}"
        for message in context.messages:
            self._add(
                [
                    "SubBefore",
                    self._clock(),
                    message.properties.get(names.MSG_REGION, _DEFAULT_REGION),
                    context.group,
                    request,
                    message.message_id,
                    message.reconsume_times,
                    " ".join(message.keys),
                ],
                _keys(message),
            )

    def after_consume(self, context: ConsumeHookContext) -> None:
        """SubAfter, one record a message."""
        for message in context.messages:
            self._add(
                [
                    "SubAfter",
                    context.notes.get("request", ""),
                    message.message_id,
                    round(context.elapsed_ms),
                    "true" if context.consumed else "false",
                    " ".join(message.keys),
                    _SUCCESS if context.error is None else _EXCEPTION,
                    self._clock(),
                    context.group,
                ],
                _keys(message),
            )


def _keys(message: ReceivedMessage) -> tuple[str, ...]:
    return (message.message_id, *message.keys)
