"""The old pull consumer: the user says which queue to pull from which offset, and keeps the offsets.

Java: client/impl/consumer/DefaultMQPullConsumerImpl.java
"""

from __future__ import annotations

import trio

from rocketlet.client.config import PullConfig
from rocketlet.client.consuming import queue_allocation
from rocketlet.client.consuming.group_member import GroupMember
from rocketlet.client.consuming.received_messages import as_pulled
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.consuming.send_back import SendBack
from rocketlet.client.errors import NoRoute
from rocketlet.client.sending.send_result import PullResult, PullStatus
from rocketlet.client.talking.broker_calls import readable
from rocketlet.client.talking.session import World
from rocketlet.client.validators import check_name, check_received, check_seconds, check_whole
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.response_codes import ResponseCode

_ANSWER_TIMEOUT = 10.0  # RocketMQ's, for a pull that the broker does not hold


class PullEngine(GroupMember):
    """One pull consumer. Everything but `note_offset` is called on its loop."""

    def __init__(self, group: str, config: PullConfig, world: World) -> None:
        super().__init__(group, config, world)
        self._send_back = SendBack(self)
        self._noted: set[MessageQueue] = set()

    async def _begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._persist_forever)  # brokers learn of it with its first pull

    async def _end(self) -> None:
        with trio.move_on_after(self.config.request_timeout):
            await self.commit()

    async def _persist_forever(self) -> None:
        while True:
            await trio.sleep(self.config.persist_interval)
            await self.offsets.persist(self._noted)

    async def share(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that are allocated to this member now; nothing keeps others from pulling them."""
        check_name(topic)
        wire = self.wire_topic(topic)
        self._subscribed(wire, "*")
        route = await self.session.route(wire)
        await self.session.heartbeats.to_all()
        members = await self.members(wire)
        if members is None:
            raise NoRoute("no broker answers with the members of the group", topic=topic)
        allocation = self.config.allocation
        allocated = queue_allocation.allocate(allocation, self.group, self.session.client_id, route.readable, members)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in allocated]

    async def pull(
        self, queue: MessageQueue, offset: int, at_most: int = 32, selection: Selection = "*", *, hold: float = 0.0
    ) -> PullResult:
        """One pull from an offset; `hold` is for how many seconds the broker may wait for a message."""
        check_whole("offset", offset)
        check_whole("at_most", at_most, 1, (1 << 31) - 1)
        check_seconds("hold", hold)
        wire = self.wire_queue(queue)
        subscription = self._subscribed(wire.topic, selection)
        address = await self.session.reader_of(wire)
        header = pulling.PullMessageHeader(
            queueId=wire.queue_id,
            queueOffset=offset,
            maxMsgNums=at_most,
            topic=wire.topic,
            consumerGroup=self.group,
            sysFlag=pulling.SUBSCRIPTION | (pulling.SUSPEND if hold else 0),
            suspendTimeoutMillis=round(hold * 1000),
            subscription=subscription.expression,
            subVersion=subscription.version,
            expressionType=subscription.expression_type,
            bname=wire.broker_name,
        )
        timeout = max(self.config.pull_timeout, hold + _ANSWER_TIMEOUT) if hold else _ANSWER_TIMEOUT
        code, answer, body = await self.session.brokers.pull(address, header, timeout)
        messages, next_offset = [], answer.nextBeginOffset
        if code == ResponseCode.SUCCESS:
            reader = self.session.reader
            with readable("what was pulled", address, queue.topic):
                messages = reader.pulled(body, queue, subscription)
            if reader.rest_from is not None:
                next_offset = reader.rest_from
        status = PullStatus(code)
        if status is PullStatus.FOUND and not messages:
            status = PullStatus.NO_MATCHED_MESSAGE
        return PullResult(
            status, next_offset, answer.minOffset, answer.maxOffset, messages, answer.suggestWhichBrokerId
        )

    def _subscribed(self, topic: str, selection: Selection) -> Subscription:
        """What is pulled is subscribed too, so that brokers know what this group consumes."""
        subscription = self.subscriptions.get(topic)
        if subscription is None or subscription_of(topic, selection, subscription.version) != subscription:
            subscription = self.subscriptions[topic] = self.subscription(topic, selection)
        return subscription

    # ---- offsets

    async def offset(self, queue: MessageQueue) -> int | None:
        """The group's stored offset."""
        return await self.committed(queue)

    def note_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed. From any thread."""
        check_whole("offset", offset)
        wire = self.wire_queue(queue)
        self._noted.add(wire)
        self.offsets.update(wire, offset)

    async def commit(self) -> None:
        """Store what was noted now, with an answer from the broker."""
        await self.offsets.persist(self._noted, wait=True)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a message redelivered through the group's retry topic."""
        check_received(message)
        check_whole("delay_level", delay_level, -1, (1 << 31) - 1)
        await self._send_back.concurrent(as_pulled(message), delay_level)
