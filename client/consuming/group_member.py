"""A member of a consumer group: its identity towards brokers, its subscriptions, and its offsets.

All consumers share this, even one that gets messages without holding queues. A consumer that holds
queues is a `QueueHolder`.

Java: client/impl/consumer/MQConsumerInner.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import trio

from rocketlet.client import namespace
from rocketlet.client.config import ConsumerConfig, MessageModel
from rocketlet.client.consuming.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.running_info import ConsumerStatistics, queue_info, settings_info, stacks
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.errors import ClientError
from rocketlet.client.talking.broker_calls import subscription_data
from rocketlet.client.talking.route_cache import Route
from rocketlet.client.talking.session import Session, World
from rocketlet.client.talking.side_by_side import for_each
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_group, check_name, check_queue
from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.remoting.handler import Handler, Refused, Reply, Request
from rocketlet.remoting.protocol.inspection import ConsumerRunningInfo, GetConsumerRunningInfoHeader
from rocketlet.remoting.protocol.membership import ConsumerData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.group_member")

_MOST_ASKED = 3  # brokers for the members of a group, one after the other; then it is tried again later


class GroupMember:
    """One member. Lives on its loop."""

    consume_type = "CONSUME_ACTIVELY"

    def __init__(self, group: str, config: ConsumerConfig, world: World) -> None:
        check_group(group, reserved=topics.DEFAULT_CONSUMER_GROUP)
        self.group = namespace.wrap(config.namespace, group)
        check_group(self.group)
        self.broadcasting = config.model is MessageModel.BROADCASTING
        self.session = Session(config, world, stable_id=self.broadcasting)
        self.queries = TopicQueries(self.session)
        self.subscriptions: dict[str, Subscription] = {}
        """By topic on the wire."""
        self.statistics = ConsumerStatistics()
        self.started_at = 0
        self.offsets: OffsetStore = (
            LocalOffsets(config.offset_directory, self.session.client_id, self.group)
            if self.broadcasting
            else RemoteOffsets(self.group, self.session.brokers, self.session.routes.reader)
        )
        self.config = config
        self._clock = world.clock
        self.held: dict[MessageQueue, ProcessQueue] = {}
        """The queues that it consumes now, and those that it is releasing."""
        self._running = False
        """From its first heartbeat until it shuts down."""
        self.session.handlers[int(RequestCode.GET_CONSUMER_RUNNING_INFO)] = Handler(
            self._running_info, GetConsumerRunningInfoHeader
        )
        self.session.consumer_data = self._consumer_data
        self.session.topics_in_use = self.topics_in_use

    def topics_in_use(self) -> Iterable[str]:
        """Topics whose routes are needed, by their names on the wire."""
        return self.subscriptions

    # ---- life

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until `stop` is set, then shut down in order. Started once there is something to consume from."""
        self.started_at = self._clock()
        async with self.session.opened() as nursery:
            await self._begin(nursery)
            self._running = True
            task_status.started()
            await stop.wait()
            with trio.CancelScope(shield=True):
                self._running = False
                await self._end()
                await self.session.unregister(None, self.group)

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Make it known, and start its tasks."""
        await self.introduce_to_brokers()

    async def _end(self) -> None:
        """Commit and release what is held."""

    # ---- names

    def wire_topic(self, topic: str) -> str:
        """A topic's name on the wire."""
        return namespace.wrap(self.config.namespace, topic)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """The name that brokers know for a queue given by the user. Raises InvalidUse."""
        check_queue(queue)
        return namespace.wrap_queue(self.config.namespace, queue)

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the user knows it."""
        return namespace.unwrap_queue(self.config.namespace, queue)

    # ---- subscriptions

    def subscription(self, topic: str, selection: Selection) -> Subscription:
        """A subscription newer than all earlier ones: brokers accept only growing versions. Raises InvalidUse."""
        check_name(topic)  # as it is on the wire: the namespace, or the prefix of a retry topic, may make it too long
        newest = max((subscription.version for subscription in self.subscriptions.values()), default=0)
        return subscription_of(topic, selection, max(self._clock(), newest + 1))

    async def check_filters(self) -> None:
        """Raises Refused for an SQL condition that a broker cannot filter by."""
        for subscription in list(self.subscriptions.values()):
            route = self.session.routes.get(subscription.topic)
            if subscription.expression_type != TAG and route is not None:
                await self._check_filter(subscription, route)

    async def _check_filter(self, subscription: Subscription, route: Route) -> None:
        failures: list[ClientError] = []

        async def check(address: str) -> None:
            try:
                await self.session.brokers.check_subscription(address, self.session.client_id, self.group, subscription)
            except ClientError as error:
                failures.append(error)
                asking.cancel()

        with trio.CancelScope() as asking:
            await for_each(list(filter(None, map(self.session.routes.reader, route.addresses))), check)
        if failures:
            raise failures[0]

    # ---- to the brokers

    async def introduce_to_brokers(self) -> None:
        """Ask for the routes of all topics, have filters checked, and make this consumer known."""
        await for_each(list(self.topics_in_use()), self.session.try_to_refresh)
        await self.check_filters()
        await self.session.heartbeats.to_all()

    async def members(self, topic: str) -> list[str] | None:
        """The group's client ids, from any broker of the topic that answers; None if none of a few does."""
        routes = self.session.routes
        route = routes.get(topic)
        addresses = list(filter(None, map(routes.reader, route.addresses))) if route is not None else []
        self.session.world.random.shuffle(addresses)
        addresses.sort(key=lambda address: not self.session.heartbeats.are_answered_by(address))
        for address in addresses[:_MOST_ASKED]:
            try:
                return await self.session.brokers.members(address, self.group)
            except ClientError as error:
                log.info("the members of %s are not known at %s: %s", self.group, address, error)
        return None

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue."""
        wire = self.wire_queue(queue)
        await self.session.reader_of(wire)  # so that the route is known
        return await self.offsets.read(wire)

    def _consumer_data(self) -> ConsumerData:
        """The group in heartbeats."""
        return ConsumerData(
            groupName=self.group,
            consumeType=self.consume_type,
            messageModel=self.config.model.value,
            consumeFromWhere=self.config.consume_from.value,
            subscriptionDataSet=[subscription_data(subscription) for subscription in self.subscriptions.values()],
            unitMode=self.config.unit_mode,
        )

    # ---- from the brokers

    def collect(self) -> None:
        """Apply what has been consumed so far."""

    def check_is_ours(self, group: str) -> None:
        """Raises Refused if a request is about another group."""
        if group != self.group:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer client")

    def _running_info(self, request: Request) -> Reply:
        self.check_is_ours(request.header.consumerGroup)
        self.collect()
        info = ConsumerRunningInfo(
            properties={
                **settings_info(self.config),
                "PROP_CONSUME_TYPE": self.consume_type,
                "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in self.session.namesrv.addresses),
                "PROP_CONSUMER_START_TIMESTAMP": str(self.started_at),
            },
            subscriptionSet=[subscription_data(subscription) for subscription in self.subscriptions.values()],
            mqTable={queue: queue_info(process_queue, self._clock) for queue, process_queue in self.held.items()},
            statusTable={topic: self.statistics.of(topic) for topic in self.subscriptions},
            jstack=stacks() if request.header.jstackEnable else None,
        )
        return Reply(body=info.to_json())
