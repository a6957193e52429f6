"""The lite pull consumers, for threads and for event loops: they hand over messages on demand.

Java: client/consumer/DefaultLitePullConsumer.java
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Self

from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.lite_pull_consumer import LitePullEngine, QueuesChanged
from rocketlet.client.consuming.message_buffer import Batch
from rocketlet.client.consuming.selector import Selection, check_selection, check_topics
from rocketlet.client.coroutines import called, completed
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import Facade, InThreads, OnEventLoop, engine_method, shared
from rocketlet.client.talking.session import World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_queue, check_seconds
from rocketlet.common.message import MessageQueue, ReceivedMessage


class _Hand:
    """What a user holds: the messages not finished yet, and the rest of the batch being iterated over."""

    given: Batch | None = None
    rest: Batch | None = None
    """In reverse order, so that `pop` gives the next."""


class _HandOfThread(threading.local, _Hand):
    """One for each thread: a thread finishes the messages that it got itself."""


class LitePulled(Facade[LitePullEngine]):
    """The methods of every lite pull consumer."""

    _role = "consumer"
    _hand_type: type[_Hand] = _Hand

    def __init__(
        self,
        group: str,
        *,
        topics: Mapping[str, Selection] | None = None,
        config: PullConfig | None = None,
        namesrv: str | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PullConfig by name. `world` is for tests."""
        super().__init__(group, PullConfig, config, namesrv, world, settings)
        self._topics = check_topics(topics)
        self._queues: tuple[list[MessageQueue], Selection] | None = None
        self._hand = self._hand_type()

    def _make_engine(self, bridge: Bridge, world: World) -> LitePullEngine:
        engine = LitePullEngine(self.group, self.config, world)
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        return engine

    async def _opened(self, bridge: Bridge, engine: LitePullEngine) -> None:
        if self._queues is not None:
            await bridge.call(engine.assign, *self._queues)

    def _comes_to_its_end(self) -> None:
        self._came_back(self._running()[1])

    # ---- messages

    @shared
    async def poll(self, timeout: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of one queue, or none if none came in time. Those of the last poll now count as
        consumed."""
        check_seconds("timeout", timeout)
        bridge, engine = self._running()
        self._came_back(engine)
        self._leave_iteration()
        self._hand.given = batch = await self._next(bridge, engine, timeout)
        return [] if batch is None else list(batch.messages)

    async def _next(self, bridge: Bridge, engine: LitePullEngine, timeout: float) -> Batch | None:
        buffer = engine.buffer
        batch = buffer.take()
        until = bridge.time() + timeout
        while batch is None and not buffer.closed:
            if not await bridge.wait_for_message(buffer, max(0.0, until - bridge.time())):
                return None
            batch = buffer.take()
        return batch

    def _next_of_batch(self, engine: LitePullEngine) -> ReceivedMessage | None:
        """The next message of the current batch; None where another batch is needed."""
        hand = self._hand
        self._came_back(engine)
        rest = hand.rest
        if rest is None or not rest.messages or rest.process_queue.dropped:
            return None
        message = rest.messages.pop()
        hand.given = Batch(rest.process_queue, [message])
        return message

    async def _next_batch(self, bridge: Bridge, engine: LitePullEngine) -> bool:
        """Start another batch; False once the consumer is closed."""
        found = await self._next(bridge, engine, math.inf)
        self._hand.rest = None if found is None else Batch(found.process_queue, found.messages[::-1])
        return found is not None

    def _leave_iteration(self) -> None:
        """Put the rest of the current batch back."""
        rest, self._hand.rest = self._hand.rest, None
        if rest is not None and self._now is not None:
            self._now[1].buffer.put_back(Batch(rest.process_queue, rest.messages[::-1]))

    def _came_back(self, engine: LitePullEngine) -> None:
        given = self._hand.given
        if given is not None:
            engine.finished.append(given)
            self._hand.given = None

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
        self._topics.pop(topic, None)
        if self._now is not None:
            bridge, engine = self._now
            await bridge.call(called, engine.unsubscribe, topic)

    @shared
    async def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does; before the start or after."""
        chosen = list(queues)
        for queue in chosen:
            check_queue(queue)
            check_selection(queue.topic, selection)
        self._queues = chosen, selection
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
        bridge, engine = self._running()

        def tell(topic: str, queues: set[MessageQueue]) -> None:
            bridge.callback(lambda: changed(topic, queues))()

        await bridge.call(called, engine.watch, topic, tell)

    seek = engine_method(LitePullEngine.seek)
    seek_to_begin = engine_method(LitePullEngine.seek_to_begin)
    seek_to_end = engine_method(LitePullEngine.seek_to_end)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Do not pull these; what is pulled already is still handed over."""
        bridge, engine = self._running()
        bridge.tell(engine.pause, list(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        bridge, engine = self._running()
        bridge.tell(engine.resume, list(queues))

    # ---- offsets

    @shared
    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store now how far this consumer is, and wait for the broker: all that was handed over counts as consumed.

        With `offsets` these are stored instead.
        """
        bridge, engine = self._running()
        if offsets is None:
            self._came_back(engine)
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

    _hand_type = _HandOfThread

    def __iter__(self) -> Iterator[ReceivedMessage]:
        bridge, engine = self._running()
        try:
            while True:
                message = self._next_of_batch(engine)
                if message is not None:
                    yield message
                elif not completed(self._next_batch(bridge, engine)):
                    return
        finally:  # even if the loop over the consumer is left early
            self._leave_iteration()


class AsyncLitePullConsumer(LitePulled, OnEventLoop):
    """Hands over messages on demand, under trio or asyncio.

        async with AsyncLitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                print(message.body)

    A message counts as consumed when the next one is asked for, or when the block ends without an error.
    """

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return _Messages(self, *self._running())


class _Messages:
    """Iterates over a consumer. Not an async generator, which its user would have to close if left early."""

    def __init__(self, consumer: AsyncLitePullConsumer, bridge: Bridge, engine: LitePullEngine) -> None:
        self._consumer = consumer
        self._bridge = bridge
        self._engine = engine

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while (message := self._consumer._next_of_batch(self._engine)) is None:
            if not await self._consumer._next_batch(self._bridge, self._engine):
                raise StopAsyncIteration
        return message
