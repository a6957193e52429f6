"""The lite pull consumer: pulls ahead in the background, hands over what is asked for.

Either it subscribes and is given its share of the queues, as a push consumer is, or queues are assigned to it by hand.
Each queue is pulled by a loop of its own into one buffer; `poll` takes from there. What `poll` has returned counts as
consumed when the next `poll`, or the end, says that its user came back for more: a program that dies over a message
gets it again.

`seek` drops what is buffered of a queue and pulls anew; a pull that the broker still holds is not delivered any more.

Java: client/impl/consumer/DefaultLitePullConsumerImpl.java
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import trio

from rocketlet.client import namespace
from rocketlet.client.config import MessageModel, PullConfig
from rocketlet.client.consuming.consumer_statistics import ConsumerStatistics
from rocketlet.client.consuming.message_buffer import Batch, MessageBuffer
from rocketlet.client.consuming.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.pull_loop import PullLoop, PullTerms
from rocketlet.client.consuming.rebalance import Rebalance
from rocketlet.client.consuming.running_info import running_info_handler
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.consuming.start_offset import HALF_AN_HOUR_MS, start_offset
from rocketlet.client.errors import ClientError, InvalidUse
from rocketlet.client.talking.broker_calls import subscription_data
from rocketlet.client.talking.session import Session, World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_group
from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.protocol.membership import ConsumerData, NotifyConsumerIdsChangedHeader
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.client.lite_pull_consumer")

QueuesChanged = Callable[[str, set[MessageQueue]], object]


class LitePullEngine:
    """One lite pull consumer. All of it is called on its loop, but for `buffer` and `finished`."""

    consume_type = "CONSUME_ACTIVELY"

    def __init__(self, group: str, config: PullConfig, world: World) -> None:
        check_group(group, reserved=topics.DEFAULT_CONSUMER_GROUP)
        self.config = config
        self.group = namespace.wrap(config.namespace, group)
        self.broadcasting = config.model is MessageModel.BROADCASTING
        self.session = Session(config, world, stable_id=self.broadcasting)
        self.queries = TopicQueries(self.session)
        self.buffer = MessageBuffer()
        self.finished: deque[Batch] = deque()
        """What users have come back from; appended by any thread, taken in by `collect`."""
        self.subscriptions: dict[str, Subscription] = {}
        self._filters: dict[str, Subscription] = {}
        self.statistics = ConsumerStatistics(world.clock)
        self.started_at = 0
        self._world = world
        self._timestamp = 0
        self._assigned: dict[MessageQueue, int | None] | None = None
        self._paused: set[MessageQueue] = set()
        self._loops: dict[ProcessQueue, tuple[PullLoop, trio.CancelScope]] = {}
        self._running = False
        self._nursery: trio.Nursery | None = None
        self.offsets: OffsetStore = (
            LocalOffsets(config.offset_directory, self.session.client_id, self.group)
            if self.broadcasting
            else RemoteOffsets(self.group, self.session.brokers, self.session.routes.master)
        )
        self.rebalance = Rebalance(
            self.group,
            self.session.client_id,
            subscriptions=self.subscriptions,
            routes=self.session.routes,
            brokers=self.session.brokers,
            owner=self,
            allocation=config.allocation,
            model=config.model,
            locking=False,
            random=world.random,
            interval=config.rebalance_interval,
        )
        self._terms = PullTerms(
            group=self.group,
            batch=config.pull_batch,
            timeout=config.pull_timeout,
            hold=config.poll_timeout,
            interval=0.0,
            commit=False,
            flags=pulling.SUSPEND | pulling.LITE_PULL,
            send_subscription=True,
        )
        self.session.handlers[int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)] = Handler(
            self._members_changed, NotifyConsumerIdsChangedHeader
        )
        self.session.handlers[int(RequestCode.GET_CONSUMER_RUNNING_INFO)] = running_info_handler(self)
        self.session.consumers.append(self.consumer_data)
        self.session.topics.append(self._topics_in_use)
        self.session.routes_changed.append(lambda topic: self.rebalance.wake())

    # ---- life

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pull until `stop` is set, then commit and take leave."""
        self.started_at = self._world.clock()
        self._timestamp = self.config.consume_timestamp or self.started_at - HALF_AN_HOUR_MS
        async with self.session.opened(), trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._meet_the_brokers()
            await nursery.start(self.rebalance.run)
            if self.config.auto_commit:
                nursery.start_soon(self._persist_for_ever)
            self._running = True
            if self._assigned is not None:
                await self._apply_assignment()
            task_status.started()
            await stop.wait()
            with trio.CancelScope(shield=True):
                await self._leave()
            nursery.cancel_scope.cancel()

    async def _meet_the_brokers(self) -> None:
        for topic in self._topics_in_use():
            try:
                await self.session.refresh(topic)
            except ClientError as error:
                log.warning("the route of %s is not known yet: %s", topic, error)
        for subscription in list(self.subscriptions.values()):
            await self._check_filter(subscription)
        await self.session.heartbeat()

    async def _check_filter(self, subscription: Subscription) -> None:
        route = self.session.routes.get(subscription.topic)
        if subscription.expression_type == "TAG" or route is None:
            return
        for broker_name in route.addresses:
            found = self.session.routes.address(broker_name)
            if found is not None:
                await self.session.brokers.check_subscription(
                    found[0], self.session.client_id, self.group, subscription
                )

    async def _leave(self) -> None:
        self._running = False
        self.buffer.closed = True
        self.buffer.wake_all()
        self.collect()
        with trio.move_on_after(self.config.request_timeout):
            if self.config.auto_commit:
                self._note_all()
                await self.offsets.persist(list(self.rebalance.held), wait=True)
            await self.rebalance.give_up_all()
        await self.session.unregister(None, self.group)

    async def _persist_for_ever(self) -> None:
        while True:
            await trio.sleep(self.config.persist_interval)
            self.collect()
            self._note_all()
            await self.offsets.persist(list(self.rebalance.held))

    def _topics_in_use(self) -> set[str]:
        return {*self.subscriptions, *(queue.topic for queue in self._assigned or ())}

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues that are pulled now."""
        return self.rebalance.held

    # ---- which queues

    def subscribe(self, topic: str, selection: Selection) -> None:
        """Share a topic with the other members of the group."""
        if self._assigned is not None:
            raise InvalidUse("queues are assigned to this consumer", advice="either subscribe or assign")
        wire = self._wire(topic)
        newest = max((subscription.version for subscription in self.subscriptions.values()), default=0)
        version = max(self._world.clock(), newest + 1)
        self.subscriptions[wire] = subscription_of(wire, selection, version)
        if self._running:
            assert self._nursery is not None
            self._nursery.start_soon(self._subscribed, wire)

    async def _subscribed(self, topic: str) -> None:
        try:
            await self.session.refresh(topic)
        except ClientError as error:
            log.warning("the route of %s is not known yet: %s", topic, error)
        await self.tell_brokers()
        self.rebalance.wake()

    def unsubscribe(self, topic: str) -> None:
        """No longer want it."""
        self.subscriptions.pop(self._wire(topic), None)
        if self._running:
            assert self._nursery is not None
            self._nursery.start_soon(self.tell_brokers)
        self.rebalance.wake()

    async def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does."""
        if self.subscriptions:
            raise InvalidUse("this consumer has subscriptions", advice="either subscribe or assign")
        wanted = {self._wire_queue(queue) for queue in queues}
        self.rebalance.by_hand = True
        before = self._assigned or {}
        self._assigned = {queue: before.get(queue) for queue in wanted}
        self._filters = {
            topic: subscription_of(topic, selection, self._world.clock()) for topic in {queue.topic for queue in wanted}
        }
        if self._running:
            await self._apply_assignment()

    async def _apply_assignment(self) -> None:
        assert self._assigned is not None
        for queue in [queue for queue in self.rebalance.held if queue not in self._assigned]:
            process_queue = self.rebalance.held.pop(queue)
            process_queue.drop()
            await self.given_up(process_queue)
        for queue, sought in self._assigned.items():
            if queue not in self.rebalance.held:
                await self.session.master_of(queue)
                offset = sought if sought is not None else await self.start_offset(queue)
                self._hold(queue, offset)

    def _hold(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self.rebalance.new_process_queue(queue, offset)
        self.rebalance.held[queue] = process_queue
        self.taken(process_queue)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are pulled now."""
        return {self.shown(queue) for queue, held in list(self.rebalance.held.items()) if not held.dropped}

    # ---- where in them

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from this offset."""
        wire = self._wire_queue(queue)
        if self._assigned is not None and not self._running and wire in self._assigned:
            self._assigned[wire] = offset
            return
        process_queue = self.rebalance.held.get(wire)
        if process_queue is None or process_queue.dropped:
            raise InvalidUse(f"{queue} is not a queue of this consumer now", advice="look at assignment()")
        address = await self.session.master_of(wire)
        low = await self.session.brokers.min_offset(address, wire)
        high = await self.session.brokers.max_offset(address, wire)
        if not low <= offset <= high:
            raise InvalidUse(f"{queue} has the offsets {low} to {high}, not {offset}")
        self._move(wire, offset)

    def _move(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self.rebalance.held[queue]
        process_queue.drop()
        _, scope = self._loops.pop(process_queue)
        scope.cancel()
        self._hold(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the oldest message."""
        wire = self._wire_queue(queue)
        await self.seek(queue, await self.session.brokers.min_offset(await self.session.master_of(wire), wire))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on from what comes next."""
        wire = self._wire_queue(queue)
        await self.seek(queue, await self.session.brokers.max_offset(await self.session.master_of(wire), wire))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Do not pull these; a pull that the broker holds may still deliver."""
        self._paused.update(map(self._wire_queue, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        self._paused.difference_update(map(self._wire_queue, queues))
        for loop, _ in self._loops.values():
            loop.room.set()

    # ---- offsets

    def collect(self) -> None:
        """Take in what users have come back from."""
        while self.finished:
            batch = self.finished.popleft()
            batch.process_queue.finish(batch.messages)
            loop = self._loops.get(batch.process_queue)
            if loop is not None:
                loop[0].room.set()

    def _note_all(self) -> None:
        for queue, process_queue in self.rebalance.held.items():
            if not process_queue.dropped:
                self.offsets.update(queue, process_queue.committable())

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far all queues are consumed, or these offsets; with an answer from the broker."""
        self.collect()
        if offsets is None:
            self._note_all()
            await self.offsets.persist(list(self.rebalance.held), wait=True)
            return
        for queue, offset in offsets.items():
            self.offsets.update(self._wire_queue(queue), offset)
        await self.offsets.persist([self._wire_queue(queue) for queue in offsets], wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of a queue."""
        wire = self._wire_queue(queue)
        await self.session.master_of(wire)
        return await self.offsets.read(wire)

    # ---- changes of a topic's queues

    def watch(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(topic, queues)` whenever the topic has other queues than before."""
        assert self._nursery is not None
        self._nursery.start_soon(self._watch, topic, changed)

    async def _watch(self, topic: str, changed: QueuesChanged) -> None:
        known: set[MessageQueue] | None = None
        while True:
            try:
                await self.session.refresh(self._wire(topic))
                queues = set(await self.queries.queues(topic))
            except ClientError as error:
                log.warning("the queues of %s are not known: %s", topic, error)
            else:
                if known is not None and queues != known:
                    changed(topic, queues)
                known = queues
            await trio.sleep(self.config.topic_interval)

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
        loop = PullLoop(
            process_queue,
            puller=self,
            terms=self._terms,
            subscription=lambda: self.subscriptions.get(queue.topic) or self._filters.get(queue.topic),
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
        self.collect()
        if self.config.auto_commit and not self.rebalance.is_restarting(queue):
            self.offsets.update(queue, process_queue.committable())
            await self.offsets.persist([queue])
        self.offsets.forget(queue)

    def balanced(self, topic: str, all_queues: list[MessageQueue], own: set[MessageQueue]) -> None:
        """Nothing to do: `assignment` shows it."""

    async def tell_brokers(self) -> None:
        """Heartbeat now."""
        await self.session.heartbeat()

    def _members_changed(self, request: Request) -> Reply:
        if request.header.consumerGroup == self.group:
            self.rebalance.wake()
        return Reply()

    # ---- as the one on whose behalf is pulled (pull_loop)

    def pulled(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Put messages where `poll` finds them."""
        if messages:
            self.statistics.pulled(process_queue.queue.topic, len(messages))
            self.buffer.put(Batch(process_queue, messages))

    def full(self, process_queue: ProcessQueue) -> str:
        """Why a queue must not be pulled now."""
        config = self.config
        if process_queue.queue in self._paused:
            return "the queue is paused"
        self.collect()
        if process_queue.count >= config.queue_max_messages:
            return f"{process_queue.count} messages are not polled yet"
        if process_queue.bytes >= config.queue_max_bytes:
            return f"{process_queue.bytes} bytes are not polled yet"
        if process_queue.span > config.max_span:
            return f"the oldest message is {process_queue.span} behind the newest"
        together = self.rebalance.totals
        if together.count >= config.buffered_messages:
            return f"{together.count} messages of all queues are not polled yet"
        if together.bytes >= config.max_bytes:
            return f"{together.bytes} bytes of all queues are not polled yet"
        return ""

    def unknown(self) -> None:
        """Tell the brokers who this is."""
        self.session.heartbeat_soon()

    def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """Go on from an offset that the broker has."""
        self._move(process_queue.queue, offset)

    # ---- names

    def _wire(self, topic: str) -> str:
        return namespace.wrap(self.config.namespace, topic)

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        if not self.config.namespace:
            return queue
        return MessageQueue(self._wire(queue.topic), queue.broker_name, queue.queue_id)

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the user knows it."""
        if not self.config.namespace:
            return queue
        return MessageQueue(namespace.unwrap(self.config.namespace, queue.topic), queue.broker_name, queue.queue_id)

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
