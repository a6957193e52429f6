"""200051 ACK_MESSAGE, 200151 BATCH_ACK_MESSAGE, 200053 CHANGE_MESSAGE_INVISIBLETIME, of 5.x.

An ack is answered when it is in the log, and with SYNC_FLUSH or SYNC_MASTER as safe there as a send; those of one turn
are written and wait together. It counts with any handle of the message, even late: an answered ack is never forgotten.
A message that was never delivered is 208. A change requires the handle of the newest delivery (208 with an older one);
for an acknowledged message it changes nothing and succeeds.

Java: broker/processor/AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.handlers.pop_answers import PopAnswers
from rocketlet.broker.popping.facts import Key
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.receipt_handle import ORDERLY_REVIVE_QUEUE, InvalidHandle, ReceiptHandle, parse_receipt_handle
from rocketlet.remoting.access import Access, Need, Permission, Resource, subscribe
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.handler import Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.popping import (
    AckMessageHeader,
    BatchAckBody,
    ChangeInvisibleTimeAnswerHeader,
    ChangeInvisibleTimeHeader,
)
from rocketlet.remoting.ready_answers import success
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

# Messages of one batch of acks, over all its queues.
MAX_PER_BATCH = 10_000


def _topics(body: bytes | memoryview) -> list[str]:
    return [ack.topic for ack in BatchAckBody.from_json(body).acks]


def _groups(body: bytes | memoryview) -> list[str]:
    return [ack.group for ack in BatchAckBody.from_json(body).acks]


class PopAcks:
    """Handles acknowledgements."""

    def __init__(self, topics: TopicTable, pops: Pops, answers: PopAnswers) -> None:
        self._topics = topics
        self._pops = pops
        self._later = answers.when_safe

    def table(self) -> HandlerTable:
        consume = subscribe(topic="topic", group="consumerGroup")
        named = Access((
            Need(Permission.SUBSCRIBE, Resource.TOPIC, _topics),
            Need(Permission.SUBSCRIBE, Resource.GROUP, _groups),
        ))  # fmt: skip
        return {
            RequestCode.ACK_MESSAGE: Handler(self.ack, AckMessageHeader, "pull", access=consume),
            RequestCode.BATCH_ACK_MESSAGE: Handler(self.batch, None, "pull", access=named),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Handler(
                self.change, ChangeInvisibleTimeHeader, "pull", access=consume
            ),
        }

    def ack(self, request: Request) -> Deferred | None:
        header: AckMessageHeader = request.header
        _handle(header.extraInfo)
        key = self._key(header.consumerGroup, header.topic, header.queueId)
        self._pops.acknowledge(key, range(header.offset, header.offset + 1))
        return self._later(request, success(request.header_type, request.opaque) or Reply())

    def batch(self, request: Request) -> Deferred | None:
        body = BatchAckBody.from_json(request.body)
        remaining = MAX_PER_BATCH
        refusal: Refused | None = None
        for ack in body.acks:
            try:
                offsets = ack.offsets(remaining)
                remaining -= len(offsets)
                self._pops.acknowledge(self._key(ack.group, ack.topic, ack.queueId), offsets)
            except BodyError as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
            except Refused as refused:
                refusal = refused  # the others are still acknowledged
        if refusal is not None:
            return self._later(request, Reply(refusal.code, remark=refusal.remark))
        return self._later(request, success(request.header_type, request.opaque) or Reply())

    def change(self, request: Request) -> Deferred | None:
        header: ChangeInvisibleTimeHeader = request.header
        handle = _handle(header.extraInfo)
        key = self._key(header.consumerGroup, header.topic, header.queueId)
        pop_time, invisible = self._pops.change(key, header.offset, handle.pop_time, header.invisibleTime)
        revive = handle.revive_queue if handle.revive_queue == ORDERLY_REVIVE_QUEUE else 0
        return self._later(request, Reply(header=ChangeInvisibleTimeAnswerHeader(pop_time, invisible, revive)))

    def _key(self, group: str, topic: str, queue_id: int) -> Key:
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not 0 <= queue_id < max(config.read, config.write):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"queueId[{queue_id}] is illegal, topic:[{topic}]")
        return Key(group, topic, queue_id)


def _handle(text: str) -> ReceiptHandle:
    try:
        return parse_receipt_handle(text)
    except InvalidHandle as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
