"""Message traces: about one message a second to the trace topic, which says what was sent and consumed, when and how.

A record is text: its kind and fields, joined by 0x01 and ended by 0x02.

    Pub            time region group topic id tags keys storeHost length cost type offsetId success
    SubBefore      time region group request id retries keys
    SubAfter       request id cost success keys code time group
    EndTransaction time region group topic id tags keys storeHost type transactionId state fromCheck

The trace message has the ids and keys of all messages in it as its own keys, so that a query by message id finds it. As
in Java, messages that were not stored are not traced, nor those for which the broker (`traceOn=false`) or the message
itself (property TRACE_ON=false) forbids it. Traces are best effort: what cannot be sent is logged and dropped, and the
newest are dropped when too many wait.

Java: client/trace/TraceDataEncoder.java, AsyncTraceDispatcher.java, client/trace/hook/
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from itertools import accumulate, count

import trio

from rocketlet.client.errors import ClientError
from rocketlet.client.hooks import ConsumeHookContext, EndTransactionContext, SendContext
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.send_result import SendStatus
from rocketlet.client.talking.session import Session
from rocketlet.common import message_properties as names
from rocketlet.common.clock import WallClock
from rocketlet.common.message import Message, ReceivedMessage

log = logging.getLogger("rocketlet.client.trace")

_EVERY = 1.0
_AT_ONCE = 100  # records a trace message holds
_MAX_BYTES = 128_000  # of records in one; Java: maxMsgSize of its trace producer
_MAX_KEYS = 24_000  # characters of keys in one, for properties have 32,767 bytes
_MAX_WAITING = 10_000
_DEFAULT_REGION = "DefaultRegion"
_NORMAL, _HALF, _COMMIT, _DELAYED = range(4)  # Java: MessageType
_SUCCESS, _TIME_OUT, _EXCEPTION, _NULL, _FAILED = range(5)  # Java: ConsumeReturnType; no listener of ours returns null


_Record = tuple[str, tuple[str, ...]]
"""Its text, and the keys under which it is found."""


class Tracer:
    """The traces of one producer or consumer; a hook of both kinds. Records come from any thread.

    `consume_timeout`: seconds after which consumption counts as timed out.
    """

    def __init__(self, session: Session, topic: str, clock: WallClock, consume_timeout: float = 900.0) -> None:
        self._topic = topic
        self._clock = clock
        self._consume_timeout_ms = consume_timeout * 1000
        self._numbers = count(1)
        self._waiting: deque[_Record] = deque()
        self._session = session

    async def run(self) -> None:
        """Send the collected records every second, until cancelled."""
        while True:
            await trio.sleep(_EVERY)
            await self.flush()

    async def flush(self) -> None:
        """Send the collected records."""
        producer = InnerProducer(self._session, "_INNER_TRACE_PRODUCER")
        while self._waiting:
            records = self._next_records()
            keys = _fitting(dict.fromkeys(key for _, record_keys in records for key in record_keys if key))
            body = "".join(text for text, _ in records).encode()
            try:
                await producer.send(Message(self._topic, body, keys=tuple(keys)), 0, 0)
            except ClientError as error:
                log.warning("%d message traces were not sent: %s", len(records), error)

    def _next_records(self) -> list[_Record]:
        """As many records as one message holds; a single one may be longer."""
        records: list[_Record] = []
        size = key_size = 0
        while self._waiting and len(records) < _AT_ONCE:
            text, keys = self._waiting[0]
            size += len(text.encode())
            key_size += sum(len(key.encode()) + 1 for key in keys)
            if records and (size > _MAX_BYTES or key_size > _MAX_KEYS):
                break
            records.append(self._waiting.popleft())
        return records

    def _add(self, message_id: str, keys: str, *fields: object) -> None:
        if len(self._waiting) < _MAX_WAITING:
            text = _sendable("\x01".join(map(str, fields)) + "\x02")
            self._waiting.append((text, (*_sendable(message_id).split(","), *_sendable(keys).split())))

    # ---- sending

    def before_send(self, context: SendContext) -> None:
        """Nothing yet: the record is written when the outcome is known."""

    def after_send(self, context: SendContext) -> None:
        """Pub, if the message was stored and is to be traced."""
        message, result = context.message, context.result
        if (
            result is None
            or message.topic == self._topic
            or not result.trace_on
            or _is_untraced({**message.properties, **context.properties})
        ):
            return
        kind = _HALF if context.is_half else _DELAYED if message.delay_level else _NORMAL
        safely = "true" if result.status is SendStatus.SEND_OK else "false"
        last = (context.body_size, round(context.elapsed_ms), kind, result.offset_message_id, safely)
        self._add_sent("Pub", context, context.born, result.region_id, result.queue.broker_name, *last)

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """EndTransaction."""
        if _is_untraced(context.message.properties):
            return
        state = f"{context.state.name}_MESSAGE" if context.state.value else "UNKNOW"  # Java: LocalTransactionState
        last = (_COMMIT, context.message_id, state, "true" if context.from_check else "false")
        self._add_sent("EndTransaction", context, self._clock(), context.region_id, context.broker_name, *last)

    def _add_sent(
        self,
        kind: str,
        context: SendContext | EndTransactionContext,
        time: int,
        region: str | None,
        broker_name: str,
        *last: object,
    ) -> None:
        """A record of Pub or EndTransaction, which begin alike; `last` are the fields that only one has."""
        message, message_id, keys = context.message, context.message_id, _keys(context.message)
        address = self._session.routes.master(broker_name) or ""
        about = (context.group, message.topic, message_id, message.tags or "", keys, address)
        self._add(message_id, keys, kind, time, region or _DEFAULT_REGION, *about, *last)

    # ---- consuming

    def before_consume(self, context: ConsumeHookContext) -> None:
        """SubBefore, one record a message."""
        context.notes["request"] = request = f"{self._clock():x}-{next(self._numbers):x}"
        for message in _traced(context):
            message_id, keys = message.message_id, _keys(message)
            region = message.properties.get(names.MSG_REGION, _DEFAULT_REGION)
            about = (context.group, request, message_id, message.reconsume_times, keys)
            self._add(message_id, keys, "SubBefore", self._clock(), region, *about)

    def after_consume(self, context: ConsumeHookContext) -> None:
        """SubAfter, one record a message."""
        messages = _traced(context)
        request, consumed = context.notes.get("request", ""), "true" if context.consumed else "false"
        for message in messages:
            message_id, keys = message.message_id, _keys(message)
            cost = round(context.elapsed_ms / len(messages))
            about = (request, message_id, cost, consumed, keys, self._outcome(context), self._clock(), context.group)
            self._add(message_id, keys, "SubAfter", *about)

    def _outcome(self, context: ConsumeHookContext) -> int:
        if context.error is not None:
            return _EXCEPTION
        if context.elapsed_ms >= self._consume_timeout_ms:
            return _TIME_OUT
        return _SUCCESS if context.consumed else _FAILED


def _fitting(keys: Collection[str]) -> list[str]:
    """As many keys as a message has room for: its id comes first."""
    sizes = accumulate(len(key.encode()) + 1 for key in keys)
    return [key for key, size in zip(keys, sizes, strict=True) if size <= _MAX_KEYS]


def _sendable(text: str) -> str:
    """With question marks for what a listener may have written that has no UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _is_untraced(properties: Mapping[str, str]) -> bool:
    return properties.get(names.TRACE_ON) == "false"


def _traced(context: ConsumeHookContext) -> list[ReceivedMessage]:
    return [message for message in context.messages if not _is_untraced(message.properties)]


def _keys(message: Message | ReceivedMessage) -> str:
    return message.keys if isinstance(message.keys, str) else " ".join(message.keys)
