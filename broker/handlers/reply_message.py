"""324 SEND_REPLY_MESSAGE, 325 SEND_REPLY_MESSAGE_V2 → 326 PUSH_REPLY_MESSAGE_TO_CLIENT: the answer to a request.

A reply names the waiting client in REPLY_TO_CLIENT; that client is known from the producer groups in its heartbeats.
The reply is pushed to that client, which has 10 s to accept it, and stored in the cluster's reply topic if
`storeReplyMessageEnable`. The answer is 0 if the client accepted it, else 1 with the reason; in both cases it says
where the reply was stored.

Java: broker/processor/ReplyMessageProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketlet.broker.config import Settings
from rocketlet.broker.handlers.send_targets import SendHeader, SendTargets, born_host_of
from rocketlet.broker.identity import Identity
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.broker.property_text import rewritten
from rocketlet.broker.put_again import FilterBits, tags_code
from rocketlet.common.clock import WallClock
from rocketlet.common.message_properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, decode, index_keys
from rocketlet.remoting.access import publish
from rocketlet.remoting.command import request as command_of
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.sending import (
    PushReplyMessageHeader,
    SendMessageAnswerHeader,
    SendMessageHeader,
    SendMessageHeaderV2,
    SendRefusedHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import StoreError
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.handlers.reply_message")

PUSH_SECONDS = 10.0


class ReplyMessage:
    """Delivers replies to waiting clients. `settle` dispatches what was stored outside a turn."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        targets: SendTargets,
        producers: ProducerGroups,
        store: MessageStore,
        clock: WallClock,
        settle: Callable[[], None],
        filter_bits: FilterBits,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._targets = targets
        self._producers = producers
        self._store = store
        self._clock = clock
        self._settle = settle
        self._filter_bits = filter_bits

    def table(self) -> HandlerTable:
        return {
            RequestCode.SEND_REPLY_MESSAGE: Handler(
                self.handle, SendMessageHeader, "reply", access=publish("topic"), longest_body=None
            ),
            RequestCode.SEND_REPLY_MESSAGE_V2: Handler(
                self.handle, SendMessageHeaderV2, "reply", access=publish("topic"), longest_body=None
            ),
        }

    async def handle(self, request: Request) -> Reply:
        header: SendHeader = request.header
        config = self._settings.now
        region, trace = config.region_id, "true" if config.trace_on else "false"
        try:
            topic = self._targets.topic(request, header)
            queue_id = self._targets.queue(request, header, topic)
        except Refused as refused:
            refused.header = refused.header or SendRefusedHeader(region, trace)
            raise
        body = bytes(request.body)
        failure = await self._push(request, header, queue_id, body)
        # Zeros for clients that read these fields even of a reply that is not stored.
        answer = SendMessageAnswerHeader("0", queue_id, 0, MSG_REGION=region, TRACE_ON=trace)
        if config.store_reply_message_enable:
            self._keep(request, header, queue_id, body, answer)
        return Reply(ResponseCode.SYSTEM_ERROR if failure else ResponseCode.SUCCESS, answer, remark=failure)

    async def _push(self, request: Request, header: SendHeader, queue_id: int, body: bytes) -> str | None:
        """Push the reply to its client. Returns why that failed."""
        properties = decode(header.properties)
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        member = self._producers.client(client_id)
        if member is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock()
        push = PushReplyMessageHeader(
            queueId=queue_id,
            topic=header.topic,
            producerGroup=header.producerGroup,
            defaultTopic=header.defaultTopic,
            defaultTopicQueueNums=header.defaultTopicQueueNums,
            sysFlag=header.sysFlag,
            bornTimestamp=header.bornTimestamp,
            flag=header.flag,
            properties=rewritten(properties | {PUSH_REPLY_TIME: str(now)}).decode("utf-8", "replace"),
            reconsumeTimes=header.reconsumeTimes,
            unitMode=header.unitMode,
            bornHost=request.connection.peer,
            storeHost=self._identity.address,
            storeTimestamp=now,
        )
        question = command_of(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, body)
        try:
            reply = await member.connection.call(question, PUSH_SECONDS)
        except RemotingError as error:
            log.warning("a reply does not reach client %s: %s", client_id, error)
            return f"push reply message to {client_id} fail: {error}"
        if reply.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. It answered {reply.code}: {reply.remark}"
        return None

    def _keep(
        self, request: Request, header: SendHeader, queue_id: int, body: bytes, answer: SendMessageAnswerHeader
    ) -> None:
        """Store the reply; a failure to store it does not affect its delivery."""
        raw = header.properties.encode("utf-8", "surrogatepass")
        message = Put(
            header.topic,
            queue_id,
            body,
            raw,
            tags_code(raw),
            index_keys(raw),
            header.flag,
            header.sysFlag,
            header.bornTimestamp,
            born_host_of(request.connection),
            self._identity.store_host,
            header.reconsumeTimes,
        )
        message.filter_bits = self._filter_bits(message.topic, raw)
        try:
            appended = self._store.put(message)
        except StoreError as error:
            log.error("a reply is handed on, but cannot be stored: %s", error)
            return
        self._settle()
        answer.msgId = self._identity.message_id(appended.log_offset)
        answer.queueOffset = appended.queue_offset
