"""Request and reply over topics: a message asks, its consumer answers, and the answer finds the requester.

The request carries a correlation id and the requester's client id. The consumer sends its reply to the cluster's reply
topic; the broker pushes it at once to the connection of the requester's heartbeats (326), where it wakes the call that
waits for that correlation id. So a requester must be known to the broker before it asks.

Java: client/impl/ClientRemotingProcessor.java#receiveReplyMessage, client/utils/MessageUtil.java
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import trio

from rocketlet.client.compression import CannotInflate, inflate
from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import InvalidMessage, RequestTimedOut, shortened
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_pipeline import SendPipeline
from rocketlet.client.talking.session import Session
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage
from rocketlet.common.topic import reply_topic
from rocketlet.remoting.handler import Handler, Refused, Reply, Request
from rocketlet.remoting.protocol.sending import PushReplyMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.request_reply")

REPLY = "reply"
DEFAULT_REQUEST_TIMEOUT = 3.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """One request that waits for its reply."""

    answered: trio.Event = field(default_factory=trio.Event)
    reply: ReceivedMessage | None = None


class Requests:
    """The requests of one client. Lives on its loop."""

    def __init__(self, session: Session, pipeline: SendPipeline, config: ProducerConfig) -> None:
        self._session = session
        self._pipeline = pipeline
        self._config = config
        self._waiting: dict[str, _Waiting] = {}
        session.handlers[int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)] = Handler(
            self._replied, PushReplyMessageHeader, "client", longest_body=None
        )

    def properties(self, timeout: float) -> dict[str, str]:
        """What a request carries besides its own properties. The correlation id is new in each."""
        return {
            names.CORRELATION_ID: correlation_id(self._session.world.random),
            names.REPLY_TO_CLIENT: self._session.client_id,
            names.TTL: str(round(timeout * 1000)),
        }

    async def request(self, send: Send, correlation: str, timeout: float) -> ReceivedMessage:
        """Send a request and wait for its reply. Raises RequestTimedOut, or what the send raises."""
        waiting = self._waiting[correlation] = _Waiting()
        start = trio.current_time()
        try:
            with trio.move_on_after(timeout):
                await self._session.introduce(send.topic, self._config.default_topic, self._config.default_topic_queues)
                await self._pipeline.sent(send)
                await waiting.answered.wait()
        finally:
            del self._waiting[correlation]
        if waiting.reply is not None:
            return waiting.reply
        raise RequestTimedOut(
            "no reply came in time",
            topic=send.topic,
            elapsed_ms=(trio.current_time() - start) * 1000,
            advice="is a consumer of the topic running, and does it reply?",
        )

    def _replied(self, request: Request) -> Reply:
        header: PushReplyMessageHeader = request.header
        properties = names.decode(header.properties)
        correlation = properties.get(names.CORRELATION_ID, "")
        waiting = self._waiting.get(correlation)
        if waiting is None:
            correlation = shortened(correlation)
            log.info("a reply came for a request that is no longer waited for (%s)", correlation)
            raise Refused(ResponseCode.SYSTEM_ERROR, f"nobody waits for a reply to {correlation}")
        try:
            waiting.reply = self._message(header, properties, bytes(request.body))
        except CannotInflate as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        waiting.answered.set()
        return Reply()

    def _message(self, header: PushReplyMessageHeader, properties: dict[str, str], body: bytes) -> ReceivedMessage:
        keys = properties.get(names.KEYS)
        properties[names.ARRIVE_TIME] = str(self._session.world.clock())
        return ReceivedMessage(
            topic=header.topic,
            body=inflate(body, header.sysFlag, self._config.max_inflated_size),
            queue=MessageQueue(header.topic, "", header.queueId),
            queue_offset=-1,
            log_offset=-1,
            message_id=properties.get(names.UNIQ_KEY, ""),
            offset_message_id="",
            born_timestamp=header.bornTimestamp,
            born_host=header.bornHost.lstrip("/"),
            store_timestamp=header.storeTimestamp,
            store_host=header.storeHost.lstrip("/"),
            reconsume_times=header.reconsumeTimes,
            tags=properties.get(names.TAGS),
            keys=tuple(keys.split()) if keys else (),
            flag=header.flag,
            sys_flag=header.sysFlag,
            properties=properties,
            prepared_transaction_offset=0,
        )


def correlation_id(random: Random) -> str:
    """A random UUID, version 4."""
    return str(UUID(int=random.getrandbits(128), version=4))


def reply_to(request: ReceivedMessage, body: bytes) -> tuple[Message, dict[str, str]]:
    """The message that answers a request, with the properties that lead it to the requester. Raises InvalidMessage."""
    cluster = request.properties.get(names.CLUSTER)
    asker = request.properties.get(names.REPLY_TO_CLIENT)
    correlation = request.properties.get(names.CORRELATION_ID)
    if not cluster or not asker or not correlation:
        raise InvalidMessage(
            f"message {request.message_id} asks for no reply", topic=request.topic, advice="send it by request()"
        )
    extra = {
        names.MSG_TYPE: REPLY,
        names.CORRELATION_ID: correlation,
        names.REPLY_TO_CLIENT: asker,
        names.TTL: request.properties.get(names.TTL, ""),
    }
    return Message(reply_topic(cluster), body), {name: value for name, value in extra.items() if value}
