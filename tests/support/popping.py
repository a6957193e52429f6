"""A popping consumer for tests of a broker: messages with their handles, acks and changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketlet.common.message_record import Record
from rocketlet.common.receipt_handle import ReceiptHandle
from rocketlet.remoting.command import Command
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.popping import (
    AckMessageHeader,
    BatchAck,
    BatchAckBody,
    ChangeInvisibleTimeAnswerHeader,
    ChangeInvisibleTimeHeader,
    PopMessageAnswerHeader,
    PopMessageHeader,
    parse_info,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import Client
from tests.support.records import decode_all


@dataclass
class PoppedMessage:
    """One message of a pop."""

    record: Record
    handle: ReceiptHandle

    @property
    def body(self) -> bytes:
        return self.record.body

    @property
    def times(self) -> int:
        """How often it was delivered before."""
        return self.record.reconsume_times


@dataclass
class Popper:
    """One group at one topic."""

    client: Client
    group: str = "PG"
    topic: str = "T"
    broker_name: str = "broker-a"
    order: bool = False
    invisible_ms: int = 30_000

    async def pop(self, count: int = 32, *, poll_ms: int = 0, **fields: Any) -> list[PoppedMessage]:
        answer = await self.answer(count, poll_ms=poll_ms, **fields)
        if answer.code != 0:
            assert answer.code == 210, (answer.code, answer.remark)
            return []
        header = from_ext(PopMessageAnswerHeader, answer.ext)
        starts, offsets = parse_info(header.startOffsetInfo), parse_info(header.msgOffsetInfo)
        records = decode_all(bytes(answer.body))
        named = [(queue, int(one)) for (_, queue), text in offsets.items() for one in text.split(",")]
        assert named == [(record.queue_id, record.queue_offset) for record in records]
        return [
            PoppedMessage(
                record,
                ReceiptHandle(
                    int(starts[0, record.queue_id]), header.popTime, header.invisibleTime, header.reviveQid, 0,
                    self.broker_name, record.queue_id, record.queue_offset,
                ),
            )
            for record in records
        ]  # fmt: skip

    async def answer(self, count: int = 32, *, poll_ms: int = 0, **fields: Any) -> Command:
        header_fields: dict[str, Any] = {
            "consumerGroup": self.group, "topic": self.topic, "maxMsgNums": count, "invisibleTime": self.invisible_ms,
            "pollTime": poll_ms, "order": self.order,
        }  # fmt: skip
        return await self.client.call(RequestCode.POP_MESSAGE, PopMessageHeader(**(header_fields | fields)))

    async def ack(self, message: PoppedMessage) -> int:
        handle = message.handle
        header = AckMessageHeader(handle.queue_id, handle.offset, self.group, self.topic, str(handle))
        return (await self.client.call(RequestCode.ACK_MESSAGE, header)).code

    async def ack_all(self, messages: list[PoppedMessage]) -> int:
        acks = []
        for queue in sorted({message.handle.queue_id for message in messages}):
            handles = [message.handle for message in messages if message.handle.queue_id == queue]
            start = min(handle.offset for handle in handles)
            bits = BatchAck.bits_of(start, [handle.offset for handle in handles])
            first = handles[0]
            acks.append(
                BatchAck(self.group, self.topic, "0", start, queue, 0, first.pop_time, first.invisible_time, bits)
            )
        body = BatchAckBody(self.broker_name, acks).to_json()
        return (await self.client.call(RequestCode.BATCH_ACK_MESSAGE, None, body)).code

    async def change(self, message: PoppedMessage, invisible_ms: int) -> tuple[int, PoppedMessage]:
        handle = message.handle
        header = ChangeInvisibleTimeHeader(
            handle.queue_id, handle.offset, invisible_ms, self.group, self.topic, str(handle)
        )
        answer = await self.client.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        if answer.code != 0:
            return answer.code, message
        new = from_ext(ChangeInvisibleTimeAnswerHeader, answer.ext)
        return 0, PoppedMessage(message.record, handle.changed(new.popTime, new.invisibleTime, new.reviveQid))
