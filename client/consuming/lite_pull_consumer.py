"""The lite pull consumer: pulls ahead in the background and hands messages over on demand.

Either it subscribes and is given its share of the queues, as a push consumer is, or queues are assigned to it by hand.
Each queue is pulled by a loop of its own into one buffer; `poll` takes from there. What `poll` has returned counts as
consumed once the next `poll`, or the shutdown, shows that the user has finished with it: a program that dies over a
message gets it again.

`seek` drops what is buffered of a queue and pulls again; a pull that the broker still holds is not delivered any more.

Java: client/impl/consumer/DefaultLitePullConsumerImpl.java
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import trio

from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.consuming.pulled_queue import MessageBuffer, Pulled, PulledQueue
from rocketlet.client.consuming.queue_holder import QueueHolder
from rocketlet.client.consuming.selector import Selection, subscription_of
from rocketlet.client.errors import ClientError, InvalidUse
from rocketlet.client.talking.session import World
from rocketlet.client.validators import check_whole
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import Buffer
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.protocol import pulling

log = logging.getLogger("rocketlet.client.lite_pull_consumer")

QueuesChanged = Callable[[str, set[MessageQueue]], object]


class LitePullEngine(QueueHolder):
    """One lite pull consumer. Everything but `buffer` and `finished` is called on its loop."""

    config: PullConfig
    queue_type = PulledQueue
    pull_flags = pulling.SUSPEND | pulling.LITE_PULL | pulling.SUBSCRIPTION

    def __init__(self, group: str, config: PullConfig, world: World) -> None:
        super().__init__(group, config, world)
        self.buffer = MessageBuffer()
        self.finished: deque[tuple[Pulled, int, int]] = deque()
        """Which parts of which batches users have finished; appended by any thread, applied by `collect`."""
        self._commits = config.auto_commit
        self._filters: dict[str, Subscription] = {}
        """By topic of the queues that are assigned by hand."""
        self._paused: set[MessageQueue] = set()

    # ---- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        await super()._begin(nursery)
        if self._commits:
            nursery.start_soon(self._persist_forever, self.config.persist_interval)

    async def _end(self) -> None:
        self.buffer.closed = True
        self.buffer.wake_all()
        self.collect()
        with trio.move_on_after(self.config.request_timeout):
            if self._commits:
                await self.persist(wait=True)
            await self.rebalance.give_up_all()

    def topics_in_use(self) -> Iterable[str]:
        return {*self.subscriptions, *self._filters}

    # ---- which queues

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Share a topic with the other members of the group."""
        if self.rebalance.by_hand:
            raise InvalidUse("queues are assigned to this consumer", advice="either subscribe or assign")
        super().subscribe(topic, selection)

    async def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does. Requires: it runs."""
        if self.subscriptions:
            raise InvalidUse("this consumer has subscriptions", advice="either subscribe or assign")
        assigned = {self.wire_queue(queue) for queue in queues}
        self.rebalance.by_hand = True
        self._filters = {
            topic: subscription_of(topic, selection, self._clock()) for topic in {queue.topic for queue in assigned}
        }
        for queue in [queue for queue in self.held if queue not in assigned]:
            process_queue = self.held.pop(queue)
            process_queue.drop()
            await self.on_given_up(process_queue)
        self._pull_anew(list(self._loops))
        for queue in assigned:
            if queue not in self.held:
                self._assign_at(queue, await self.rebalance.start_offset(queue))

    def _assign_at(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self.rebalance.new_process_queue(queue, offset)
        self.held[queue] = process_queue
        self.on_taken(process_queue)

    def filter_of(self, topic: str) -> Subscription | None:
        return super().filter_of(topic) or self._filters.get(topic)

    # ---- positions

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Raises InvalidUse where the queue does not have it."""
        check_whole("offset", offset)
        wire = self.wire_queue(queue)
        process_queue = self.held.get(wire)
        if process_queue is None or process_queue.dropped:
            raise InvalidUse(f"{queue} is not a queue of this consumer now", advice="look at assignment()")
        low, high = await self.queries.min_offset(queue), await self.queries.max_offset(queue)
        if not low <= offset <= high:
            raise InvalidUse(f"{queue} has the offsets {low} to {high}, not {offset}")
        self.offset_moved(self.held[wire], offset)  # which may have been acquired anew

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message."""
        await self.seek(queue, await self.queries.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with messages that arrive from now on."""
        await self.seek(queue, await self.queries.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these; a pull that the broker holds may still deliver."""
        self._paused.update(map(self.wire_queue, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        self._paused.difference_update(map(self.wire_queue, queues))
        self.pull_again()

    # ---- offsets

    def collect(self) -> None:
        """Apply what users have finished with."""
        while self.finished:
            batch, begin, end = self.finished.popleft()
            batch.process_queue.finish_part(batch, begin, end)
            self.on_progress(batch.process_queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far all queues are consumed, or the given offsets; waits for the broker's answer."""
        if offsets is None:
            await self.persist(wait=True)
            return
        self.collect()
        for queue, offset in offsets.items():
            self.offsets.update(self.wire_queue(queue), offset)
        await self.offsets.persist([self.wire_queue(queue) for queue in offsets], wait=True)

    # ---- changes of a topic's queues

    def watch(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(topic, queues)` whenever the topic has other queues than before."""
        self.session.start_task(self._watch, topic, changed)

    async def _watch(self, topic: str, changed: QueuesChanged) -> None:
        previous: set[MessageQueue] | None = None
        while True:
            try:
                await self.session.refresh(self.wire_topic(topic))
                queues = set(await self.queries.queues(topic))
            except ClientError as error:
                log.warning("the queues of %s are not known: %s", topic, error)
            else:
                if previous is not None and queues != previous:
                    changed(topic, set(queues))  # its own, for it may change it
                previous = queues
            await trio.sleep(self.config.topic_interval)

    # ---- the consumer's side of pulling (pull_loop)

    def pulled(
        self, process_queue: ProcessQueue, records: Buffer, subscription: Subscription, next_offset: int
    ) -> None:
        """Put messages where `poll` finds them."""
        assert isinstance(process_queue, PulledQueue)
        reader = self.session.reader
        messages = reader.batch(records, self.shown(process_queue.queue), subscription)
        if reader.rest_from is not None:
            next_offset = reader.rest_from
        batch = process_queue.put_batch(messages, next_offset)
        if messages:
            self.statistics.pulled(process_queue.queue.topic, len(messages))
            self.buffer.put(batch)

    def full(self, process_queue: ProcessQueue) -> str:
        if process_queue.queue in self._paused:
            return "the queue is paused"
        self.collect()
        if self.rebalance.totals.count >= self.config.buffered_messages:
            return f"{self.rebalance.totals.count} messages of all queues are not polled yet"
        return self._full(process_queue, self.config.max_span)

    def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        process_queue.drop()
        self.stop_pulling(process_queue)
        self._assign_at(process_queue.queue, offset)
