"""The lite pull consumers, for threads and for event loops: they hand over messages on demand.

Java: client/consumer/DefaultLitePullConsumer.java
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Generic, Self, TypeVar

from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.lite_pull_consumer import LitePullEngine, QueuesChanged
from rocketlet.client.consuming.pulled_queue import Pulled
from rocketlet.client.consuming.received_messages import MessageBatch
from rocketlet.client.consuming.selector import Selection, check_selection
from rocketlet.client.coroutines import called, completed
from rocketlet.client.errors import InvalidUse
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import InThreads, OnEventLoop, Subscribed, engine_method, shared
from rocketlet.client.talking.session import World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_callable, check_name, check_seconds, check_whole, checked_queues
from rocketlet.common.message import MessageQueue, ReceivedMessage

Item = TypeVar("Item")


class _Unfinished:
    """What a user holds: the part of a batch that he has not finished, and the batch being iterated over."""

    handed_out: tuple[Pulled, int, int] | None = None
    batch: Pulled | None = None


class _UnfinishedOfThread(threading.local, _Unfinished):
    """One for each thread: a thread finishes the messages that it got itself."""


class LitePulled(Subscribed[LitePullEngine, PullConfig]):
    """The methods of every lite pull consumer."""

    _config_type = PullConfig
    _queues: tuple[list[MessageQueue], Selection] | None = None

    def _make_engine(self, bridge: Bridge, world: World) -> LitePullEngine:
        self._hand = _UnfinishedOfThread() if isinstance(self, InThreads) else _Unfinished()
        engine = LitePullEngine(self.group, self.config, world)
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        return engine

    async def _opened(self, bridge: Bridge, engine: LitePullEngine) -> None:
        if self._queues is not None:
            await bridge.call(engine.assign, *self._queues)

    def _block_ended(self) -> None:
        self._note_finished(self._running()[1])

    # ---- messages

    @shared
    async def poll(self, timeout: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of one queue, or none if none came in time. Those of the last poll now count as
        consumed."""
        check_seconds("timeout", timeout)
        bridge, engine = self._running()
        messages = await self._whole_batch(bridge, engine, timeout)
        return [] if messages is None else list(messages)

    async def _whole_batch(self, bridge: Bridge, engine: LitePullEngine, timeout: float) -> MessageBatch | None:
        """What is left of the next batch, handed over at once; None if none came in time, or it is closed."""
        self._note_finished(engine)
        self._leave_iteration()
        batch = await self._next(bridge, engine, timeout)
        if batch is None:
            return None
        begin, batch.handed = batch.handed, len(batch.messages)
        self._hand.handed_out = batch, begin, batch.handed
        return batch.messages[begin:] if begin else batch.messages

    async def _next(self, bridge: Bridge, engine: LitePullEngine, timeout: float) -> Pulled | None:
        buffer = engine.buffer
        batch = buffer.take()
        deadline = bridge.time() + timeout
        if batch is None:
            bridge.check_loop()
        while batch is None and not buffer.closed:
            if not await bridge.wait_for_message(buffer, max(0.0, deadline - bridge.time())):
                return None
            batch = buffer.take()
        return batch

    def _next_of_batch(self, engine: LitePullEngine) -> ReceivedMessage | None:
        """The next message of the current batch; None where another batch is needed."""
        hand = self._hand
        self._note_finished(engine)
        batch = hand.batch
        if batch is None or batch.handed == len(batch.messages) or batch.process_queue.dropped:
            return None
        message = batch.messages[batch.handed]
        batch.handed += 1
        hand.handed_out = batch, batch.handed - 1, batch.handed
        return message

    async def _next_message(self, bridge: Bridge, engine: LitePullEngine) -> ReceivedMessage | None:
        """The next message, of this batch or of another; None once the consumer is closed."""
        while (message := self._next_of_batch(engine)) is None:
            self._hand.batch = await self._next(bridge, engine, math.inf)
            if self._hand.batch is None:
                return None
        return message

    def _leave_iteration(self) -> None:
        """Put the rest of the current batch back."""
        batch, self._hand.batch = self._hand.batch, None
        if batch is not None and self._now is not None:
            self._now[1].buffer.put_back(batch)

    def _note_finished(self, engine: LitePullEngine) -> None:
        handed_out = self._hand.handed_out
        if handed_out is not None:
            engine.finished.append(handed_out)
            self._hand.handed_out = None

    # ---- queues

    @shared
    async def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Share a topic with the other members of the group; before the start or after."""
        check_selection(topic, selection)
        self._topics[topic] = selection
        if self._now is not None:
            bridge, engine = self._now
            await bridge.call(called, engine.subscribe, topic, selection)

    @shared
    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from it."""
        check_name(topic)
        self._topics.pop(topic, None)
        if self._now is not None:
            bridge, engine = self._now
            await bridge.call(called, engine.unsubscribe, topic)

    @shared
    async def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does; before the start or after."""
        assigned = checked_queues(queues)
        for queue in assigned:
            check_selection(queue.topic, selection)
        self._queues = assigned, selection
        if self._now is not None:
            bridge, engine = self._now
            await bridge.call(engine.assign, *self._queues)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are pulled now."""
        return self._running()[1].assignment()

    queues = engine_method(TopicQueries.queues, "queries")

    @shared
    async def on_queues_changed(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(topic, queues)` when the topic has other queues than before.

        It is called in the callback thread, or by the event loop, which it must not hold up.
        """
        check_name(topic)
        check_callable("function", changed, in_threads=isinstance(self, InThreads))
        bridge, engine = self._running()
        await bridge.call(called, engine.watch, topic, lambda *news: bridge.callback(partial(changed, *news))())

    seek = engine_method(LitePullEngine.seek)
    seek_to_begin = engine_method(LitePullEngine.seek_to_begin)
    seek_to_end = engine_method(LitePullEngine.seek_to_end)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Do not pull these; what is pulled already is still handed over."""
        bridge, engine = self._running()
        bridge.call_soon(engine.pause, checked_queues(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        bridge, engine = self._running()
        bridge.call_soon(engine.resume, checked_queues(queues))

    # ---- offsets

    @shared
    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store now how far this consumer is, and wait for the broker: all that was handed over counts as consumed.

        With `offsets` these are stored instead.
        """
        if offsets is not None:
            if not isinstance(offsets, Mapping):
                raise InvalidUse(f"the offsets are of type {type(offsets).__name__}", advice="give a dict by queue")
            for queue in checked_queues(offsets):
                check_whole("offset", offsets[queue])
        bridge, engine = self._running()
        if offsets is None:
            self._note_finished(engine)
        await bridge.call(engine.commit, offsets)

    committed = engine_method(LitePullEngine.committed)
    lag = engine_method(LitePullEngine.lag)
    offset_at = engine_method(TopicQueries.offset_at, "queries")


class LitePullConsumer(LitePulled, InThreads):
    """Hands over messages on demand.

        with LitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            for message in consumer:
                print(message.body)

    A message counts as consumed when the next one is asked for, or when the block ends without an error.
    """

    def batches(self) -> Iterator[MessageBatch]:
        """Iterate over what the pulls bring, by columns: each batch is of one queue.

            for batch in consumer.batches():
                table.insert(zip(batch.offsets, batch.bodies))

        A batch counts as consumed when the next one is asked for, or when the block ends without an error.
        """
        bridge, engine = self._running()
        while (batch := completed(self._whole_batch(bridge, engine, math.inf))) is not None:
            yield batch

    def __iter__(self) -> Iterator[ReceivedMessage]:
        bridge, engine = self._running()
        try:
            # A coroutine only where a batch has ended: its step would be felt at each message.
            while message := self._next_of_batch(engine) or completed(self._next_message(bridge, engine)):
                yield message
        finally:  # even if the loop over the consumer is left early
            self._leave_iteration()


class AsyncLitePullConsumer(LitePulled, OnEventLoop):
    """Hands over messages on demand, under trio or asyncio.

        async with AsyncLitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                print(message.body)

    A message counts as consumed when the next one is asked for, or when the block ends without an error.
    """

    def batches(self) -> AsyncIterator[MessageBatch]:
        """Iterate over what the pulls bring, by columns: each batch is of one queue.

            async for batch in consumer.batches():
                table.insert(zip(batch.offsets, batch.bodies))

        A batch counts as consumed when the next one is asked for, or when the block ends without an error.
        """
        bridge, engine = self._running()
        return _Iterator(partial(self._whole_batch, bridge, engine, math.inf))

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return _Iterator(partial(self._next_message, *self._running()))


class _Iterator(Generic[Item]):
    """Iterates until there is nothing. Not an async generator, which its user would have to close if left early."""

    def __init__(self, following: Callable[[], Awaitable[Item | None]]) -> None:
        self._following = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item = await self._following()
        if item is None:
            raise StopAsyncIteration
        return item
