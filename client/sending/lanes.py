"""The way of sends to their brokers: connections, frames, and sends that leave together.

While a request to a queue is in flight, further sends to it wait, and leave as one batch. A batch of 100 messages
costs a broker as much as ten sends, and its answer wakes us once. Nothing waits for a timer: an idle queue takes a
send at once, a busy one takes all that has gathered as soon as it has answered, or when that is as large as a batch
may be. So the more is sent, the more leaves together. With `linger` the first send to an idle queue waits so long for
others.

    leave ─ connection? ─ alone or idle? ─ frame ─▶ Call ─▶ ended(call, answer)
               │              │
             parked        the queue's Lane

A lane hands out sends in the order in which they came, so that the order within a queue stays.

Java: client/impl/MQClientAPIImpl.java#sendMessage; it never collects sends (Kafka's RecordAccumulator does)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio

from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import BadAnswer
from rocketlet.client.namespace import unwrap
from rocketlet.client.sending.send import Answer, Call, Lane, Send
from rocketlet.client.sending.send_frames import SendTemplate
from rocketlet.client.sending.send_result import SendResult, SendStatus
from rocketlet.client.talking.session import Session
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import encode_batch
from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.frame_codec import encode

MAX_BYTES = 128 << 10
"""Of one batch. More gains nothing at the broker, and keeps the first answers waiting."""
_MAX_LANES = 10_000
_ITEM = 32  # bytes of a message in a batch beside body and properties, and some for characters beyond ASCII


class Lanes:
    """The lanes and connections of one producer. Lives on its loop."""

    def __init__(
        self,
        session: Session,
        config: ProducerConfig,
        ended: Callable[[Sequence[Send], Answer, Call | None], None],
        left: Callable[[Send], None],
        start_task: Callable[..., None],
    ) -> None:
        """`ended` is told what became of sends, with their request if there was one; `left` that one was written which
        is not answered."""
        self._session = session
        self._linger = config.linger
        self._ended = ended
        self._left = left
        self._start_task = start_task
        self._lines: dict[str, Connection] = {}
        self._for_line: dict[str, deque[Send]] = {}
        self._lanes: dict[MessageQueue, Lane] = {}

    def leave(self, sends: Sequence[Send], address: str) -> None:
        """Send these to their queue, which is one, at this address: at once, with others, or when there is a
        connection."""
        line = self._lines.get(address)
        if line is not None and not line.closed:
            self._add_to_lane(sends, address, line)
            return
        parked = self._for_line.get(address)
        if parked is None:
            parked = self._for_line[address] = deque()
            self._start_task(self._get_line, address)
        parked.extend(sends)

    async def _get_line(self, address: str) -> None:
        error: RemotingError | None = None
        try:
            line = self._lines[address] = await self._session.pool.connection(address)
        except RemotingError as failure:
            error = failure
        groups: dict[MessageQueue, list[Send]] = {}
        for send in self._for_line.pop(address):
            if not send.done:
                groups.setdefault(send.queue, []).append(send)
        for sends in groups.values():
            if error is None:
                self._add_to_lane(sends, address, line)
                continue
            for send in sends:
                send.unsent += 1
            self._ended(sends, error, None)

    # ---- the lane of a queue

    def _add_to_lane(self, sends: Sequence[Send], address: str, line: Connection) -> None:
        queue = sends[0].queue
        lane = self._lanes.get(queue) or self._new_lane(queue)
        lane.address = address
        waiting = lane.waiting
        for send in sends:
            if send.alone:
                self._send_lane(lane, line)  # a send does not overtake those before it
                self._send_call(lane, line, [send])
                continue
            size = len(send.body) + len(send.text) + _ITEM
            if lane.size + size > MAX_BYTES:
                self._send_lane(lane, line)
            if self._linger and not waiting:
                lane.due = trio.current_time() + self._linger
                self._start_task(self._send_when_due, lane)
            send.waits_in = lane
            waiting.append(send)
            lane.size += size
        if not lane.calls and not self._linger:
            self._send_lane(lane, line)

    def _new_lane(self, queue: MessageQueue) -> Lane:
        if len(self._lanes) >= _MAX_LANES:
            self._lanes = {queue: lane for queue, lane in self._lanes.items() if lane.calls or lane.waiting}
        lane = self._lanes[queue] = Lane()
        return lane

    def _call_is_over(self, lane: Lane) -> None:
        """A request of this lane has ended; those that waited for it go."""
        lane.calls -= 1
        if not self._linger or trio.current_time() >= lane.due:
            self._send_if_idle(lane)

    async def _send_when_due(self, lane: Lane) -> None:
        await trio.sleep_until(lane.due)
        if trio.current_time() >= lane.due:
            self._send_if_idle(lane)

    def _send_if_idle(self, lane: Lane) -> None:
        if not lane.waiting or lane.calls:
            return
        line = self._lines.get(lane.address)
        if line is not None and not line.closed:
            self._send_lane(lane, line)
        else:
            sends = lane.take()
            if sends:
                self.leave(sends, lane.address)

    # ---- requests

    def _send_lane(self, lane: Lane, line: Connection) -> None:
        sends = lane.take()
        if sends:
            self._send_call(lane, line, sends)

    def _send_call(self, lane: Lane, line: Connection, sends: list[Send]) -> None:
        first = sends[0]
        call = Call(lane, line, sends)
        now = trio.current_time()
        for send in sends:
            send.call = call
            send.tried_at = now
        try:
            if len(sends) == 1:
                frame = _frame(first.template, line, call.opaque, first, first.text, first.body)
            else:
                template = first.template.batch
                assert template is not None
                body = encode_batch([(send.flag, send.body, send.text.encode()) for send in sends])
                frame = _frame(template, line, call.opaque, first, "", body)
            if first.oneway:
                line.send_oneway_frame(frame)
                self._left(first)
            else:
                line.call_frame_soon(call.opaque, frame, partial(self._call_ended, call))
                lane.calls += 1
        except Exception as error:  # noqa: BLE001 - what cannot be made fails alone; its caller gets the cause
            if len(sends) == 1 or isinstance(error, RemotingError):
                self._ended(sends, error, call)
            else:
                for send in sends:
                    self._send_call(lane, line, [send])

    def _call_ended(self, call: Call, answer: Answer) -> None:
        self._ended(call.sends, answer, call)
        self._call_is_over(call.lane)

    def give_up(self, send: Send) -> bool:
        """Wait no more for a send that is late; whether it had left."""
        send.waits_in = None
        call = send.call
        if call is None:
            return False
        send.call = None
        call.waited_for -= 1
        if not call.waited_for:
            call.line.forget(call.opaque)
            self._call_is_over(call.lane)
        return True


def _frame(template: SendTemplate, line: Connection, opaque: int, send: Send, text: str, body: bytes) -> bytes:
    if line.header_type is HeaderType.JSON and not line.has_hooks:
        return template.frame(opaque, send.parts(text, body))
    command = template.command(line.header_type, send.parts(text, body))
    command.opaque = opaque
    line.sign(command)
    return encode(command)


def results_of(sends: Sequence[Send], status: SendStatus, answer: Command, namespace: str) -> list[SendResult]:
    """What an answer of this status says of each message of a request. Raises BadAnswer.

    A broker stores a batch in a row; its answer has the ids of all and the queue offset of the first.
    """
    ext = answer.ext or {}
    queue = sends[0].queue
    try:
        queue_id = int(ext.get("queueId", queue.queue_id))
        queue_offset = int(ext.get("queueOffset", 0))
    except ValueError as error:
        raise BadAnswer(f"the answer to a send cannot be read: {error}", topic=sends[0].topic) from None
    if queue_id != queue.queue_id or namespace:
        queue = MessageQueue(unwrap(namespace, queue.topic), queue.broker_name, queue_id)
    transaction, region, trace_on = ext.get("transactionId"), ext.get("MSG_REGION"), ext.get("TRACE_ON") != "false"
    offset_ids = ext.get("msgId", "")
    ids = offset_ids.split(",") if len(sends) > 1 else [offset_ids]
    if len(ids) != len(sends):
        ids = [""] * len(sends)
    recall = ext.get("recallHandle")
    return [
        SendResult(
            status, send.message_id, offset_id, queue, queue_offset + place, transaction, region, trace_on, None, recall
        )
        for place, (send, offset_id) in enumerate(zip(sends, ids, strict=True))
    ]
