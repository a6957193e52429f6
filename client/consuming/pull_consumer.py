"""The old pull consumer: the user says which queue to pull, from which offset, and keeps the offsets himself.

Java: client/impl/consumer/DefaultMQPullConsumerImpl.java
"""

from __future__ import annotations

import logging

import trio

from rocketlet.client import namespace
from rocketlet.client.config import MessageModel, PullConfig
from rocketlet.client.consuming import queue_allocation
from rocketlet.client.consuming.consumer_statistics import ConsumerStatistics
from rocketlet.client.consuming.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.running_info import running_info_handler
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.consuming.send_back import SendBack
from rocketlet.client.errors import ClientError, NoRoute
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.send_result import PullResult, PullStatus
from rocketlet.client.talking.broker_calls import subscription_data
from rocketlet.client.talking.session import Session, World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_group
from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.protocol.membership import ConsumerData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.pull_consumer")

_ANSWER_TIMEOUT = 10.0  # RocketMQ's, for a pull that the broker does not hold


class PullEngine:
    """One pull consumer. All of it is called on its loop."""

    consume_type = "CONSUME_ACTIVELY"

    def __init__(self, group: str, config: PullConfig, world: World) -> None:
        check_group(group, reserved=topics.DEFAULT_CONSUMER_GROUP)
        self.config = config
        self.group = namespace.wrap(config.namespace, group)
        broadcasting = config.model is MessageModel.BROADCASTING
        self.session = Session(config, world, stable_id=broadcasting)
        self.queries = TopicQueries(self.session)
        self.offsets: OffsetStore = (
            LocalOffsets(config.offset_directory, self.session.client_id, self.group)
            if broadcasting
            else RemoteOffsets(self.group, self.session.brokers, self.session.routes.master)
        )
        self._send_back = SendBack(
            self.group,
            config.max_reconsume_times,
            self.session.brokers,
            self.session.routes.master,
            InnerProducer(self.session).send,
        )
        self.subscriptions: dict[str, Subscription] = {}
        self.statistics = ConsumerStatistics(world.clock)
        self.started_at = 0
        self.held: dict[MessageQueue, ProcessQueue] = {}  # its user's affair
        self._noted: set[MessageQueue] = set()
        self.session.handlers[int(RequestCode.GET_CONSUMER_RUNNING_INFO)] = running_info_handler(self)
        self.session.consumers.append(self.consumer_data)
        self.session.topics.append(lambda: self.subscriptions)

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be there until `stop` is set, then commit what was noted and take leave."""
        self.started_at = self.session.world.clock()
        async with self.session.opened(), trio.open_nursery() as nursery:
            nursery.start_soon(self._persist_for_ever)
            task_status.started()
            await stop.wait()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(self.config.request_timeout):
                    await self.offsets.persist(self._noted, wait=True)
                await self.session.unregister(None, self.group)
            nursery.cancel_scope.cancel()

    async def _persist_for_ever(self) -> None:
        while True:
            await trio.sleep(self.config.persist_interval)
            await self.offsets.persist(self._noted)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic."""
        return await self.queries.queues(topic)

    async def share(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that fall to this member of the group now; nothing keeps others from pulling them."""
        wire = namespace.wrap(self.config.namespace, topic)
        self._subscribed(wire, "*")
        route = await self.session.route(wire)
        await self.session.heartbeat()
        for broker_name in route.addresses:
            found = self.session.routes.address(broker_name)
            if found is None:
                continue
            try:
                members = await self.session.brokers.members(found[0], self.group)
            except ClientError as error:
                log.info("the members of %s are not known at %s: %s", self.group, broker_name, error)
                continue
            own = queue_allocation.allocate(
                self.config.allocation, self.group, self.session.client_id, route.readable, members
            )
            return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in own]
        raise NoRoute("no broker tells the members of the group", topic=topic)

    async def pull(
        self, queue: MessageQueue, offset: int, at_most: int, selection: Selection, hold: float
    ) -> PullResult:
        """One pull; with `hold` the broker may wait so long for a message."""
        wire = self._wire(queue)
        subscription = self._subscribed(wire.topic, selection)
        await self.session.master_of(wire)
        found = self.session.routes.address(wire.broker_name)
        if found is None:
            raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
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
        code, answer, body = await self.session.brokers.pull(found[0], header, timeout)
        messages = self.session.reader.pulled(body, queue, subscription) if code == ResponseCode.SUCCESS else []
        status = PullStatus(code)
        if status is PullStatus.FOUND and not messages:
            status = PullStatus.NO_MATCHED_MESSAGE
        return PullResult(
            status, answer.nextBeginOffset, answer.minOffset, answer.maxOffset, messages, answer.suggestWhichBrokerId
        )

    def _subscribed(self, topic: str, selection: Selection) -> Subscription:
        """What is pulled is subscribed too, so that brokers know what this group consumes."""
        known = self.subscriptions.get(topic)
        fresh = subscription_of(topic, selection, 0 if known is None else known.version)
        if known is None or (known.expression, known.expression_type) != (fresh.expression, fresh.expression_type):
            fresh.version = max(self.session.world.clock(), fresh.version + 1)
            self.subscriptions[topic] = fresh
            return fresh
        return known

    # ---- offsets

    async def offset(self, queue: MessageQueue) -> int | None:
        """The group's stored offset."""
        wire = self._wire(queue)
        await self.session.master_of(wire)
        return await self.offsets.read(wire)

    def note_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed; stored every few seconds, at the end, and by `commit`."""
        wire = self._wire(queue)
        self._noted.add(wire)
        self.offsets.update(wire, offset)

    async def commit(self) -> None:
        """Store what was noted, with an answer from the broker."""
        await self.offsets.persist(self._noted, wait=True)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have a message come again on the group's retry topic."""
        await self._send_back.concurrent(message, delay_level, namespace.wrap(self.config.namespace, message.topic))

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        if not self.config.namespace:
            return queue
        return MessageQueue(namespace.wrap(self.config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def consumer_data(self) -> ConsumerData:
        """The group in heartbeats."""
        return ConsumerData(
            groupName=self.group,
            consumeType=self.consume_type,
            messageModel=self.config.model.value,
            consumeFromWhere=self.config.consume_from.value,
            subscriptionDataSet=[subscription_data(subscription) for subscription in self.subscriptions.values()],
            unitMode=self.config.unit_mode,
        )
