"""The simple consumer: takes messages for a while (pop), and its user says of each that it is done, or needs longer.

No queues are held and no offsets are kept: the broker knows who has which message. Any number of consumers of a group
share every queue. With one broker and one topic, `receive` waits at the broker; with several, it asks each in turn,
and then waits for a notification from any of them, so that no message is popped that nobody asked for.

A message's handle is its property POP_CK; `extend` replaces it.

Java: client/java/impl/consumer/SimpleConsumerImpl.java (rocketmq-clients); client/consumer/PopResult.java
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import trio

from rocketlet.client.config import SimpleConfig
from rocketlet.client.consuming.group_member import GroupMember
from rocketlet.client.consuming.selector import Selection, check_selection
from rocketlet.client.errors import BadAnswer, ClientError, InvalidUse, NoRoute, Refused, TimedOut, Unreachable
from rocketlet.client.talking.broker_calls import readable
from rocketlet.client.talking.session import World
from rocketlet.client.validators import check_name, check_received, check_seconds, check_whole
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.message_properties import POP_CK
from rocketlet.common.receipt_handle import InvalidHandle, ReceiptHandle, parse_receipt_handle
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.remoting.protocol import popping
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.simple_consumer")

MOST = popping.MAX_MESSAGES
_SPARE = 5.0  # for an answer, beyond the time that the broker may wait
_LONGEST_WAIT = 30.0  # that a broker holds a request
_LONGEST_SPAN = 1 << 20  # of offsets that are acknowledged together, with a bit for each
_PAUSE = 0.5  # seconds, after no broker could be asked


@dataclass(frozen=True, slots=True)
class _Place:
    """Where messages may be: a topic at a broker."""

    subscription: Subscription
    broker_name: str


class SimpleEngine(GroupMember):
    """One simple consumer. All of it is called on its loop."""

    config: SimpleConfig

    def __init__(self, group: str, config: SimpleConfig, world: World) -> None:
        super().__init__(group, config, world)
        self._turn = 0

    async def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Receive messages of this topic too, or others of it."""
        check_selection(topic, selection)
        wire = self.wire_topic(topic)
        self.subscriptions[wire] = self.subscription(wire, selection)
        await self.introduce_to_brokers()

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of this topic."""
        check_name(topic)
        if self.subscriptions.pop(self.wire_topic(topic), None) is not None:
            await self.session.heartbeats.to_all()

    # ---- receiving

    async def receive(
        self, at_most: int = MOST, wait: float = 20.0, invisible: float | None = None
    ) -> list[ReceivedMessage]:
        """Messages that are ours for `invisible` seconds; none where there are none within `wait` seconds."""
        if not self.subscriptions:
            raise InvalidUse("nothing is subscribed", advice="subscribe to a topic, or give topics={'orders': '*'}")
        check_whole("at_most", at_most, 1)
        check_seconds("wait", wait)
        at_most, invisible = min(at_most, MOST), self.config.invisible if invisible is None else invisible
        check_seconds("invisible", invisible)
        deadline = trio.current_time() + wait
        while True:
            places = await self._places()
            remaining = max(deadline - trio.current_time(), 0.0)
            hold, is_only = min(remaining, _LONGEST_WAIT), len(places) == 1
            messages = await self._pop_from(places, at_most, invisible, hold if is_only else 0.0)
            if messages == [] and not is_only and remaining > 0:
                await self._wait_for_message(places, hold)
            if messages or trio.current_time() >= deadline:
                return messages or []
            if messages is None:
                await trio.sleep(min(_PAUSE, remaining))

    async def _places(self) -> list[_Place]:
        """All topics at all their brokers, another first each time."""
        places = []
        for topic, subscription in self.subscriptions.items():
            try:
                route = await self.session.route(topic)
            except NoRoute as error:
                log.info("nothing can be received of %s yet: %s", topic, error)
                continue
            names = dict.fromkeys(queue.broker_name for queue in route.readable)
            places += [_Place(subscription, name) for name in names]
        self._turn += 1
        first = self._turn % len(places) if places else 0
        return places[first:] + places[:first]

    async def _pop_from(
        self, places: Sequence[_Place], at_most: int, invisible: float, hold: float
    ) -> list[ReceivedMessage] | None:
        """From the first place that has some; None where no place could be asked."""
        has_answer, failure = False, None
        for place in places:
            try:
                messages = await self._pop(place, at_most, invisible, hold)
            except (Unreachable, TimedOut) as error:
                log.warning("nothing can be received from %s: %s", place.broker_name, error)
                failure = error
                continue
            if messages:
                return messages
            has_answer = True
        if failure is not None and not has_answer and hold == 0 and len(places) == 1:
            raise failure
        return [] if has_answer else None

    async def _pop(self, place: _Place, at_most: int, invisible: float, hold: float) -> list[ReceivedMessage]:
        subscription = place.subscription
        header = popping.PopMessageHeader(
            consumerGroup=self.group,
            topic=subscription.topic,
            maxMsgNums=at_most,
            invisibleTime=round(invisible * 1000),
            pollTime=round(hold * 1000),
            bornTime=self._clock(),
            initMode=popping.FROM_MIN if self.config.consume_from.value.endswith("FIRST_OFFSET") else popping.FROM_MAX,
            expType=subscription.expression_type,
            exp=subscription.expression,
            order=self.config.orderly,
            attemptId=uuid.uuid4().hex if self.config.orderly else None,
            bname=place.broker_name,
        )
        address = self._address(place.broker_name)
        try:
            answer, body = await self.session.brokers.pop(address, header, hold + _SPARE)
        except (Unreachable, TimedOut):
            if not self.config.orderly:
                raise
            # Its answer may be lost; the same attempt is given the same messages.
            answer, body = await self.session.brokers.pop(address, header, _SPARE)
        if answer is None:
            return []
        with readable("what was popped", address, subscription.topic):
            starts = popping.parse_info(answer.startOffsetInfo)
            messages = self.session.reader.several(body, place.broker_name)
            times = f"{answer.popTime} {answer.invisibleTime} {answer.reviveQid} 0 {place.broker_name}"
            heads = {queue_id: f"{start} {times} {queue_id}" for (_, queue_id), start in starts.items()}
            for message in messages:
                head = heads.get(message.queue.queue_id)
                if head is None:
                    raise BadAnswer(f"the answer to a pop does not say where {message.queue} begins", broker=address)
                message.properties[POP_CK] = f"{head} {message.queue_offset} {message.log_offset}"
        return await self._matching(messages, subscription)

    async def _matching(self, messages: list[ReceivedMessage], subscription: Subscription) -> list[ReceivedMessage]:
        """The broker compares hashes of tags; what got through by chance is done for us."""
        if subscription.expression_type != TAG or not subscription.tags:
            return messages
        unmatched = [message for message in messages if message.tags not in subscription.tags]
        if unmatched:
            await self.ack(unmatched)
        return [message for message in messages if message.tags in subscription.tags]

    async def _wait_for_message(self, places: Sequence[_Place], hold: float) -> None:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(hold):
                for place in places:
                    nursery.start_soon(self._notified, place, hold, nursery.cancel_scope)
                await trio.sleep_forever()
            nursery.cancel_scope.cancel()

    async def _notified(self, place: _Place, hold: float, scope: trio.CancelScope) -> None:
        header = popping.NotificationHeader(
            self.group, place.subscription.topic, pollTime=round(hold * 1000), bornTime=self._clock(),
            order=self.config.orderly, expType=place.subscription.expression_type, exp=place.subscription.expression,
            bname=place.broker_name,
        )  # fmt: skip
        try:
            if await self.session.brokers.notified(self._address(place.broker_name), header, hold + _SPARE):
                scope.cancel()
        except ClientError as error:
            log.info("broker %s does not tell of messages: %s", place.broker_name, error)

    def _address(self, broker_name: str) -> str:
        address = self.session.routes.master(broker_name)
        if address is None:
            raise Unreachable("the route names no master of it", broker=broker_name)
        return address

    # ---- what becomes of them

    async def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """These are done, and never come again. Raises Refused where the broker never gave one of them to the group."""
        acknowledged = list(messages) if isinstance(messages, Iterable) else [messages]
        for message in acknowledged:
            check_received(message)
        # What was popped together from one queue has handles that differ in their last two words alone.
        by_head: dict[tuple[str, str], list[ReceivedMessage]] = {}
        for message in acknowledged:
            head = str(message.properties.get(POP_CK, "")).rsplit(" ", 2)[0]
            by_head.setdefault((message.topic, head), []).append(message)
        by_broker: defaultdict[str, list[popping.BatchAck]] = defaultdict(list)
        for (topic, _), group in by_head.items():
            handle = _handle_of(group[0])
            offsets = [_handle_of(message).offset for message in group]
            start = min(handle.start_offset, *offsets)
            if max(offsets) - start > _LONGEST_SPAN:
                raise BadAnswer(
                    f"messages popped together lie at the offsets {start} to {max(offsets)}",
                    topic=topic,
                    broker=handle.broker_name,
                )
            ack = popping.BatchAck(
                self.group, self.wire_topic(topic), "0", start, handle.queue_id, handle.revive_queue, handle.pop_time,
                handle.invisible_time, popping.BatchAck.bits_of(start, offsets),
            )  # fmt: skip
            by_broker[handle.broker_name].append(ack)
        for broker, acks in by_broker.items():
            await self.session.brokers.acknowledge(self._address(broker), popping.BatchAckBody(broker, acks))

    async def extend(self, message: ReceivedMessage, invisible: float) -> None:
        """Keep a message for so many seconds from now; 0 gives it back at once. Raises Refused where somebody else has
        it meanwhile."""
        check_received(message)
        check_seconds("invisible", invisible)
        handle = _handle_of(message)
        header = popping.ChangeInvisibleTimeHeader(
            handle.queue_id, handle.offset, round(invisible * 1000), self.group, self.wire_topic(message.topic),
            str(handle), handle.broker_name,
        )  # fmt: skip
        try:
            answer = await self.session.brokers.change_invisible_time(self._address(handle.broker_name), header)
        except Refused as refused:
            if refused.code == ResponseCode.NO_MESSAGE:
                raise Refused(
                    "the message was delivered to another consumer meanwhile", code=refused.code, topic=message.topic,
                    broker=handle.broker_name, advice="receive with a longer invisible time, or extend earlier",
                ) from None  # fmt: skip
            raise
        message.properties[POP_CK] = str(handle.changed(answer.popTime, answer.invisibleTime, answer.reviveQid))


def _handle_of(message: ReceivedMessage) -> ReceiptHandle:
    try:
        return parse_receipt_handle(str(message.properties.get(POP_CK, "")))
    except InvalidHandle as error:
        raise InvalidUse(str(error), advice="hand back a message that a simple consumer has received") from None
