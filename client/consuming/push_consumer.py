"""The push consumer: subscribes, is given its share of the queues, pulls them, and calls the listener.

One of these per consumer, on one trio loop: it puts together the session, the rebalance, a pull loop a queue, the
consumption in or without order, and the offsets. The classes that users see are in `blocking` and `awaitable`.

The end goes backwards through that: no more pulls, wait for the listeners at work, give up the queues (commit, return
locks), commit once more with an answer, take leave of the brokers.

Java: client/impl/consumer/DefaultMQPushConsumerImpl.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import trio

from rocketlet.client import namespace
from rocketlet.client.config import MessageModel, PushConfig
from rocketlet.client.consuming.consume_concurrently import ConsumeConcurrently
from rocketlet.client.consuming.consume_job import Finished
from rocketlet.client.consuming.consume_orderly import ConsumeOrderly
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.consumer_requests import ConsumerRequests
from rocketlet.client.consuming.consumer_statistics import ConsumerStatistics
from rocketlet.client.consuming.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.pull_loop import PullLoop, PullTerms
from rocketlet.client.consuming.rebalance import Rebalance
from rocketlet.client.consuming.received_messages import restore_topic
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.consuming.send_back import SendBack
from rocketlet.client.consuming.start_offset import HALF_AN_HOUR_MS, start_offset
from rocketlet.client.errors import ClientError, InvalidUse
from rocketlet.client.hooks import ConsumeHook
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.talking.broker_calls import subscription_data
from rocketlet.client.talking.session import Session, World
from rocketlet.client.trace import Tracer
from rocketlet.client.validators import check_group
from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.protocol.membership import ConsumerData

log = logging.getLogger("rocketlet.client.push_consumer")

MakeWorkers: TypeAlias = Callable[[Finished, Sequence[ConsumeHook]], Workers]
"""Makes those who run the listener, with the hooks around it; they give finished jobs to the function."""

_FIRST_PERSIST = 10.0


class PushEngine:
    """One push consumer. All of it is called on its loop."""

    consume_type = "CONSUME_PASSIVELY"

    def __init__(
        self,
        group: str,
        config: PushConfig,
        world: World,
        *,
        workers: MakeWorkers,
        batch: int,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        check_group(group, reserved=topics.DEFAULT_CONSUMER_GROUP)
        self.config = config
        self.group = namespace.wrap(config.namespace, group)
        self.broadcasting = config.model is MessageModel.BROADCASTING
        self.session = Session(config, world, stable_id=self.broadcasting)
        self.tracer = Tracer(self.session, config.trace_topic, world.clock) if config.trace else None
        self.hooks = [*hooks, self.tracer] if self.tracer is not None else list(hooks)
        self.subscriptions: dict[str, Subscription] = {}
        self.statistics = ConsumerStatistics(world.clock)
        self.started_at = 0
        self._world = world
        self._timestamp = config.consume_timestamp
        self._retry_topic = topics.retry_topic(self.group)
        self._loops: dict[ProcessQueue, tuple[PullLoop, trio.CancelScope]] = {}
        self._suspended = False
        self._running = False
        self._nursery: trio.Nursery | None = None
        self.offsets: OffsetStore = (
            LocalOffsets(config.offset_directory, self.session.client_id, self.group)
            if self.broadcasting
            else RemoteOffsets(self.group, self.session.brokers, self.session.routes.master)
        )
        self.consumption: ConsumeConcurrently | ConsumeOrderly = self._make_consumption(workers, batch)
        self.rebalance = Rebalance(
            self.group,
            self.session.client_id,
            subscriptions=self.subscriptions,
            routes=self.session.routes,
            brokers=self.session.brokers,
            owner=self,
            allocation=config.allocation,
            model=config.model,
            locking=config.orderly and not self.broadcasting,
            random=world.random,
            interval=config.rebalance_interval,
        )
        self._terms = PullTerms(
            group=self.group,
            batch=config.pull_batch,
            timeout=config.pull_timeout,
            hold=config.poll_timeout,
            interval=config.pull_interval,
            commit=not self.broadcasting,
            flags=pulling.SUSPEND,
            send_subscription=config.post_subscription_when_pull,
        )
        self.session.handlers.update(ConsumerRequests(self).handlers())
        self.session.consumers.append(self.consumer_data)
        self.session.topics.append(lambda: self.subscriptions)
        self.session.routes_changed.append(lambda topic: self.rebalance.wake())

    def _make_consumption(self, workers: MakeWorkers, batch: int) -> ConsumeConcurrently | ConsumeOrderly:
        config = self.config
        send_back = None
        if not self.broadcasting:
            send_back = SendBack(
                self.group,
                config.max_reconsume_times,
                self.session.brokers,
                self.session.routes.master,
                InnerProducer(self.session).send,
                unit_mode=config.unit_mode,
            )
        if config.orderly:
            return ConsumeOrderly(
                workers=lambda finished: workers(finished, self.hooks),
                offsets=self.offsets,
                send_back=send_back,
                batch=batch,
                suspend=config.suspend,
                locking=not self.broadcasting,
                progressed=self._progressed,
                statistics=self.statistics,
                wire_topic=self._wire,
            )
        return ConsumeConcurrently(
            workers=lambda finished: workers(finished, self.hooks),
            offsets=self.offsets,
            send_back=send_back,
            batch=batch,
            consume_timeout=config.consume_timeout,
            progressed=self._progressed,
            statistics=self.statistics,
            wire_topic=self._wire,
        )

    # ---- subscriptions

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Want a topic, before the start or after."""
        wire = self._wire(topic)
        self.subscriptions[wire] = subscription_of(wire, selection, self._version())
        if self._running:
            assert self._nursery is not None
            self._nursery.start_soon(self._subscribed, wire)

    def unsubscribe(self, topic: str) -> None:
        """No longer want it; its queues are given up."""
        self.subscriptions.pop(self._wire(topic), None)
        if self._running:
            assert self._nursery is not None
            self._nursery.start_soon(self.tell_brokers)
            self.rebalance.wake()

    def _version(self) -> int:
        """The time, but larger than all versions before: the broker takes only growing ones."""
        newest = max((subscription.version for subscription in self.subscriptions.values()), default=0)
        return max(self._world.clock(), newest + 1)

    async def _subscribed(self, topic: str) -> None:
        try:
            await self.session.refresh(topic)
        except ClientError as error:
            log.warning("the route of %s is not known yet: %s", topic, error)
        await self.tell_brokers()
        self.rebalance.wake()

    # ---- life

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Consume until `stop` is set, then end in order. Started when the first queues are held."""
        if not self.subscriptions:
            raise InvalidUse("the consumer has no subscription", advice="subscribe to a topic before the start")
        self.started_at = self._world.clock()
        self._timestamp = self.config.consume_timestamp or self.started_at - HALF_AN_HOUR_MS
        if not self.broadcasting:
            self.subscriptions[self._retry_topic] = subscription_of(self._retry_topic, "*", self._version())
        async with self.session.opened(), trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.consumption.run)
            await self._meet_the_brokers()
            await nursery.start(self.rebalance.run)
            nursery.start_soon(self._persist_for_ever)
            if self.tracer is not None:
                nursery.start_soon(self.tracer.run)
            self._running = True
            task_status.started()
            await stop.wait()
            with trio.CancelScope(shield=True):
                await self._leave()
            nursery.cancel_scope.cancel()

    async def _meet_the_brokers(self) -> None:
        for topic in list(self.subscriptions):
            try:
                await self.session.refresh(topic)
            except ClientError as error:
                log.warning("the route of %s is not known yet: %s", topic, error)
        await self._check_filters()
        await self.session.heartbeat()

    async def _check_filters(self) -> None:
        """Raises Refused for an SQL condition that the broker cannot filter by."""
        for subscription in list(self.subscriptions.values()):
            route = self.session.routes.get(subscription.topic)
            if subscription.expression_type == TAG or route is None:
                continue
            for broker_name in route.addresses:
                found = self.session.routes.address(broker_name)
                if found is not None:
                    await self.session.brokers.check_subscription(
                        found[0], self.session.client_id, self.group, subscription
                    )

    async def _leave(self) -> None:
        self._running = False
        self._suspended = True
        for _, scope in self._loops.values():
            scope.cancel()
        self.consumption.abandon()
        with trio.move_on_after(self.config.shutdown_timeout) as waiting:
            if self.config.orderly:
                await self.rebalance.give_up_all()
            await self.consumption.drain()
        if waiting.cancelled_caught:
            log.warning("listeners of %s are still at work; their messages come again", self.group)
        self.consumption.collect()
        with trio.move_on_after(self.config.request_timeout):
            await self.offsets.persist(list(self.rebalance.held), wait=True)
            await self.rebalance.give_up_all()
            if self.tracer is not None:
                await self.tracer.flush()
        await self.session.unregister(None, self.group)

    async def _persist_for_ever(self) -> None:
        await trio.sleep(_FIRST_PERSIST if self.config.persist_interval >= 5 else self.config.persist_interval)
        while True:
            await self.persist()
            await trio.sleep(self.config.persist_interval)

    async def persist(self) -> None:
        """Commit how far all held queues are consumed."""
        self.consumption.collect()
        for process_queue in self.rebalance.held.values():
            if not process_queue.dropped:
                self.offsets.update(process_queue.queue, process_queue.committable())
        await self.offsets.persist(list(self.rebalance.held))

    def suspend(self) -> None:
        """Stop pulling. Pulls that the broker holds may still deliver."""
        self._suspended = True

    def resume(self) -> None:
        """Go on pulling."""
        self._suspended = False
        for loop, _ in self._loops.values():
            loop.room.set()

    @property
    def suspended(self) -> bool:
        return self._suspended

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues that are this consumer's now, and those that it is about to give up."""
        return self.rebalance.held

    # ---- as the owner of queues (rebalance)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to begin."""
        return await start_offset(
            queue,
            await self.session.master_of(queue),
            offsets=self.offsets,
            brokers=self.session.brokers,
            consume_from=self.config.consume_from,
            timestamp=self._timestamp,
        )

    def taken(self, process_queue: ProcessQueue) -> None:
        """Begin to pull a queue."""
        assert self._nursery is not None
        queue = process_queue.queue
        self.offsets.update(queue, process_queue.pulled_to)
        loop = PullLoop(
            process_queue,
            puller=self,
            terms=self._terms,
            subscription=lambda: self.subscriptions.get(queue.topic),
            routes=self.session.routes,
            brokers=self.session.brokers,
            reader=self.session.reader,
            shown_queue=self.shown(queue),
        )
        scope = trio.CancelScope()
        self._loops[process_queue] = loop, scope
        self._nursery.start_soon(self._pull, loop, scope)

    async def _pull(self, loop: PullLoop, scope: trio.CancelScope) -> None:
        with scope:
            await loop.run()

    async def given_up(self, process_queue: ProcessQueue) -> None:
        """Stop pulling a queue, and commit it where somebody else goes on from there."""
        _, scope = self._loops.pop(process_queue)
        scope.cancel()
        queue = process_queue.queue
        if isinstance(self.consumption, ConsumeOrderly):
            await self.consumption.left(process_queue)
        else:
            self.consumption.collect()
        if not self.rebalance.is_restarting(queue):
            self.offsets.update(queue, process_queue.committable())
            await self.offsets.persist([queue])
        self.offsets.forget(queue)

    def balanced(self, topic: str, all_queues: list[MessageQueue], own: set[MessageQueue]) -> None:
        """Nothing: which queues its listener gets is none of the user's business."""

    async def tell_brokers(self) -> None:
        """Heartbeat now."""
        await self.session.heartbeat()

    # ---- as the one on whose behalf is pulled (pull_loop)

    def pulled(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Hand messages to the listeners."""
        queue = process_queue.queue
        if not messages:
            if not process_queue.count:
                self.offsets.update(queue, process_queue.committable())
            return
        self.statistics.pulled(queue.topic, len(messages))
        if queue.topic == self._retry_topic:
            for message in messages:
                restore_topic(message, self.shown(queue).topic, self.config.namespace)
        self.consumption.submit(process_queue, messages, self.shown(queue))

    def full(self, process_queue: ProcessQueue) -> str:
        """Why a queue must not be pulled now."""
        if self._suspended:
            return "the consumer is suspended"
        config = self.config
        if config.orderly and not self.broadcasting and not process_queue.is_locked(trio.current_time() * 1000):
            return "the queue is not locked"
        if process_queue.count >= config.queue_max_messages or process_queue.bytes >= config.queue_max_bytes:
            self.consumption.collect()
        if process_queue.count >= config.queue_max_messages:
            return f"{process_queue.count} messages are not consumed yet"
        if process_queue.bytes >= config.queue_max_bytes:
            return f"{process_queue.bytes} bytes are not consumed yet"
        if not config.orderly and process_queue.span > config.max_span:
            return f"the oldest message is {process_queue.span} behind the newest"
        return self._full_together(process_queue.queue.topic)

    def _full_together(self, topic: str) -> str:
        config, of_topic, of_all = self.config, self.rebalance.topic_totals[topic], self.rebalance.totals
        if 0 <= config.topic_max_messages <= of_topic.count or 0 <= config.topic_max_bytes <= of_topic.bytes:
            return f"{of_topic.count} messages of the topic, {of_topic.bytes} bytes, are not consumed yet"
        if of_all.bytes >= config.max_bytes:
            return f"{of_all.bytes} bytes of all topics are not consumed yet"
        return ""

    def unknown(self) -> None:
        """Tell the brokers who this is."""
        self.session.heartbeat_soon()

    def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """Go on from an offset that the broker has."""
        self.rebalance.restart(process_queue, offset)

    def _progressed(self, process_queue: ProcessQueue) -> None:
        loop = self._loops.get(process_queue)
        if loop is not None:
            loop[0].room.set()

    # ---- names

    def _wire(self, topic: str) -> str:
        return namespace.wrap(self.config.namespace, topic)

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the user knows it."""
        if not self.config.namespace:
            return queue
        return MessageQueue(namespace.unwrap(self.config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    # ---- on the wire

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
