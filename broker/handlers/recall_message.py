"""370 RECALL_MESSAGE, of 5.x: a delayed message is recalled before it is delivered.

Refused: on a slave (14), with `recallMessageEnable=false` (16), an invalid handle or one of another broker or topic
(604), one whose delivery time has come, or whose message was delivered or recalled (604). Answered when it is in the
log, as safe there as a send.

Java: broker/processor/RecallMessageProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.config import Settings
from rocketlet.broker.durability import Durability
from rocketlet.broker.identity import Identity
from rocketlet.broker.timing.timers import Timers
from rocketlet.common.clock import WallClock
from rocketlet.common.receipt_handle import InvalidHandle, parse_recall_handle
from rocketlet.remoting.access import publish
from rocketlet.remoting.handler import Answer, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.popping import RecallMessageAnswerHeader, RecallMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import PutRefused


class RecallMessage:
    """Recalls delayed messages."""

    def __init__(
        self, identity: Identity, settings: Settings, timers: Timers, durability: Durability, clock: WallClock
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._timers = timers
        self._durability = durability
        self._clock = clock

    def table(self) -> HandlerTable:
        return {
            RequestCode.RECALL_MESSAGE: Handler(self.recall, RecallMessageHeader, "send", access=publish("topic")),
        }

    def recall(self, request: Request) -> Answer | Deferred:
        header: RecallMessageHeader = request.header
        if not self._settings.now.recall_message_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: recallMessageEnable=false"
            )
        if not self._timers.is_open:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed: this broker is a slave, or starts or stops"
            )
        try:
            handle = parse_recall_handle(header.recallHandle)
        except InvalidHandle as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed: {error}") from None
        if handle.topic != header.topic or handle.broker_name != self._identity.name:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed: the handle is of topic {handle.topic} at broker {handle.broker_name}",
            )
        if handle.deliver_ms <= self._clock():
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed: its delivery time has come")
        try:
            is_recalled = self._timers.recall(handle.topic, handle.deliver_ms, handle.message_id)
        except PutRefused as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"recall failed: {error}") from error
        if not is_recalled:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, "recall failed: no such message waits; it was recalled, or never sent"
            )
        reply = Reply(header=RecallMessageAnswerHeader(handle.message_id))
        return self._durability.answer(request, self._timers.log_end, reply, ResponseCode.SYSTEM_ERROR)
