"""A group member that holds queues: it gets its share of them, pulls each in a loop, and commits its offsets.

A subclass decides what to do with pulled messages: a push consumer calls a listener, a lite pull consumer keeps them
for `poll`.

Java: client/impl/consumer/DefaultMQPushConsumerImpl.java, DefaultLitePullConsumerImpl.java
"""

from __future__ import annotations

import trio

from rocketlet.client.config import PullConfig, PushConfig
from rocketlet.client.consuming.group_member import GroupMember
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.pull_loop import Puller, PullLoop
from rocketlet.client.consuming.rebalance import Rebalance
from rocketlet.client.consuming.selector import Selection
from rocketlet.client.talking.session import World
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.protocol.membership import NotifyConsumerIdsChangedHeader
from rocketlet.remoting.request_codes import RequestCode

_LONGEST_WAIT = 5.0  # of a start for its first queues, whatever their brokers do


class QueueHolder(GroupMember, Puller):
    """One consumer with queues. Lives on its loop."""

    config: PushConfig | PullConfig
    queue_type: type[ProcessQueue] = ProcessQueue

    def __init__(self, group: str, config: PushConfig | PullConfig, world: World, *, locking: bool = False) -> None:
        super().__init__(group, config, world)
        self.rebalance = Rebalance(self, self.on_taken, self.on_given_up, self.queue_type, locking=locking)
        self._loops: dict[ProcessQueue, PullLoop] = {}
        self.session.handlers[int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)] = Handler(
            self._members_changed, NotifyConsumerIdsChangedHeader
        )
        self.session.on_changed_route = self.rebalance.wake

    def assignment(self) -> set[MessageQueue]:
        """The queues that this consumer holds now."""
        return {self.shown(queue) for queue, process_queue in list(self.held.items()) if not process_queue.dropped}

    async def lag(self) -> dict[MessageQueue, int]:
        """For each queue that this consumer holds, how many messages were not consumed yet when it was asked."""
        self.collect()
        consumed = {
            self.shown(queue): process_queue.committable()
            for queue, process_queue in list(self.held.items())
            if not process_queue.dropped
        }
        return {queue: max(await self.queries.max_offset(queue) - offset, 0) for queue, offset in consumed.items()}

    # ---- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Register with the brokers and acquire the first queues, as many as can be had soon."""
        await super()._begin(nursery)
        balanced = trio.Event()
        nursery.start_soon(self.rebalance.run, balanced.set)
        with trio.move_on_after(_LONGEST_WAIT):
            await balanced.wait()

    # ---- subscriptions

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Subscribe to a topic, before the start or after."""
        wire = self.wire_topic(topic)
        self.subscriptions[wire] = self.subscription(wire, selection)
        if self._running:
            # A pull that the broker holds goes on past all that its old selection does not match.
            pulled = [process_queue for process_queue in self._loops if process_queue.queue.topic == wire]
            for process_queue in pulled:
                self._loops[process_queue].scope.cancel()
            self.session.start_task(self._subscribed, wire, pulled)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe; its queues are released."""
        self.subscriptions.pop(self.wire_topic(topic), None)
        if self._running:
            self.session.start_task(self.session.heartbeats.to_all)
            self.rebalance.wake()

    async def _subscribed(self, topic: str, pulled: list[ProcessQueue]) -> None:
        if not pulled:
            await self.session.try_to_refresh(topic)
        await self.session.heartbeats.to_all()
        self._pull_anew(pulled)
        self.rebalance.wake()

    def filter_of(self, topic: str) -> Subscription | None:
        return self.subscriptions.get(topic)

    # ---- offsets

    async def persist(self, *, wait: bool = False) -> None:
        """Commit how far all held queues are consumed; with `wait` the brokers answer."""
        self.collect()
        for process_queue in self.held.values():
            if not process_queue.dropped:
                self.offsets.update(process_queue.queue, process_queue.committable())
        await self.offsets.persist(list(self.held), wait=wait)

    async def _persist_forever(self, first: float) -> None:
        await trio.sleep(first)
        while True:
            await self.persist()
            await trio.sleep(self.config.persist_interval)

    # ---- as the owner of queues (rebalance)

    def on_taken(self, process_queue: ProcessQueue) -> None:
        """Start pulling a queue."""
        self._start_pulling(process_queue)

    def _start_pulling(self, process_queue: ProcessQueue) -> None:
        loop = self._loops[process_queue] = PullLoop(process_queue, self)
        self.session.start_task(loop.run)

    def _pull_anew(self, process_queues: list[ProcessQueue]) -> None:
        """Pull these from where they are, if they are still held, with what is selected now."""
        for process_queue in process_queues:
            if process_queue in self._loops:
                self.stop_pulling(process_queue)
                self._start_pulling(process_queue)

    def stop_pulling(self, process_queue: ProcessQueue) -> None:
        """Stop the pulls of a queue; an answer that the broker still holds is dropped."""
        self._loops.pop(process_queue).scope.cancel()

    async def on_given_up(self, process_queue: ProcessQueue) -> None:
        """Stop pulling a queue, and commit it if another member continues from there."""
        self.stop_pulling(process_queue)
        await self._finished(process_queue)
        queue = process_queue.queue
        if self._commits and not self.rebalance.is_restarting(queue):
            self.offsets.update(queue, process_queue.committable())
            await self.offsets.persist([queue])
        self.offsets.forget(queue)

    _commits = True
    """Whether offsets are committed without being asked."""

    async def _finished(self, process_queue: ProcessQueue) -> None:
        """Apply what was consumed of a queue. Requires: it is dropped."""
        self.collect()

    # ---- the consumer's side of pulling (pull_loop)

    def _full(self, process_queue: ProcessQueue, max_span: int | None) -> str:
        if process_queue.count >= self.config.queue_max_messages:
            return f"{process_queue.count} messages are not consumed yet"
        if process_queue.bytes >= self.config.queue_max_bytes:
            return f"{process_queue.bytes} bytes are not consumed yet"
        if max_span is not None and process_queue.span > max_span:
            return f"the oldest message is {process_queue.span} behind the newest"
        if self.rebalance.totals.bytes >= self.config.max_bytes:
            return f"{self.rebalance.totals.bytes} bytes of all queues are not consumed yet"
        return ""

    def has_no_room(self) -> bool:
        # As many pulls are under way as there are queues, and each may bring what its broker likes.
        return self.rebalance.totals.bytes >= 2 * self.config.max_bytes

    def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        self.rebalance.restart(process_queue, offset)

    def on_progress(self, process_queue: ProcessQueue) -> None:
        """Messages have been consumed: there may be room for more."""
        loop = self._loops.get(process_queue)
        if loop is not None:
            loop.room.set()

    def pull_again(self) -> None:
        """Have all loops check again whether they may pull."""
        for loop in self._loops.values():
            loop.room.set()

    # ---- from the brokers

    def _members_changed(self, request: Request) -> Reply:
        if request.header.consumerGroup == self.group:
            self.rebalance.wake()
        return Reply()
