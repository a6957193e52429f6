"""Consumers for event loops that hand over messages when they are asked, under trio and under asyncio.

Java: none; the awaitable twins of `blocking_pulling`
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from rocketlet.client import config as configs
from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.lite_pull_consumer import LitePullEngine, QueuesChanged
from rocketlet.client.consuming.message_buffer import Batch
from rocketlet.client.consuming.pull_consumer import PullEngine
from rocketlet.client.consuming.selector import Selection
from rocketlet.client.errors import ClientClosed
from rocketlet.client.facades.bridges import Bridge, bridge
from rocketlet.client.facades.plain_calls import called
from rocketlet.client.sending.send_result import PullResult
from rocketlet.client.talking.session import World
from rocketlet.common.message import MessageQueue, ReceivedMessage


class AsyncLitePullConsumer:
    """Hands over messages when it is asked, under trio or asyncio.

        async with AsyncLitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                print(message.body)

    A message counts as consumed when the next one is asked for, or when the block ends without an error.
    """

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
        self.config = configs.configured(PullConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._topics = dict(topics or {})
        self._queues: tuple[list[MessageQueue], Selection] | None = None
        self._world = world
        self._handed: Batch | None = None
        self._rest: Batch | None = None  # of the batch that is being iterated over, last message first
        self._now: tuple[Bridge, LitePullEngine] | None = None

    async def __aenter__(self) -> Self:
        running = bridge()
        engine = LitePullEngine(self.group, self.config, self._world or World())
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        await running.start(engine.run)
        self._now = running, engine
        if self._queues is not None:
            await running.call(engine.assign, *self._queues)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, engine = self._running()
        if kind is None:
            self._came_back(engine)
        self._now = None
        await running.stop(kind, error, trace)

    def _running(self) -> tuple[Bridge, LitePullEngine]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="use it in an async with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[1].session.client_id

    # ---- messages

    async def poll(self, timeout: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of one queue, or none if none came in time. What the last poll gave is now consumed."""
        running, engine = self._running()
        self._came_back(engine)
        self._leave_iteration(engine)
        batch = await self._next(running, engine, timeout)
        self._handed = batch
        return [] if batch is None else list(batch.messages)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return _Messages(self)

    async def _one(self) -> ReceivedMessage | None:
        """The next message; None at the end of the consumer."""
        running, engine = self._running()
        self._came_back(engine)
        if self._rest is None or not self._rest.messages or self._rest.process_queue.dropped:
            found = await self._next(running, engine, None)
            if found is None:
                return None
            self._rest = Batch(found.process_queue, found.messages[::-1])
        message = self._rest.messages.pop()
        self._handed = Batch(self._rest.process_queue, [message])
        return message

    def _leave_iteration(self, engine: LitePullEngine) -> None:
        """What was not iterated over is there again."""
        if self._rest is not None:
            engine.buffer.put_back(Batch(self._rest.process_queue, self._rest.messages[::-1]))
            self._rest = None

    def _came_back(self, engine: LitePullEngine) -> None:
        if self._handed is not None:
            engine.finished.append(self._handed)
            self._handed = None

    async def _next(self, running: Bridge, engine: LitePullEngine, timeout: float | None) -> Batch | None:
        buffer = engine.buffer
        batch = buffer.take()
        until = math.inf if timeout is None else running.time() + timeout
        while batch is None and not buffer.closed:
            if not await running.wait_for_message(buffer, max(0.0, until - running.time())):
                return None
            batch = buffer.take()
        return batch

    # ---- queues

    async def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Share a topic with the other members of the group; before the block or in it."""
        self._topics[topic] = selection
        if self._now is not None:
            running, engine = self._now
            await running.call(called, engine.subscribe, topic, selection)

    async def unsubscribe(self, topic: str) -> None:
        """No longer want it."""
        self._topics.pop(topic, None)
        if self._now is not None:
            running, engine = self._now
            await running.call(called, engine.unsubscribe, topic)

    async def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does; before the block or in it."""
        self._queues = list(queues), selection
        if self._now is not None:
            running, engine = self._now
            await running.call(engine.assign, *self._queues)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are pulled now."""
        return self._running()[1].assignment()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        running, engine = self._running()
        return await running.call(engine.queries.queues, topic)

    async def on_queues_changed(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(topic, queues)` when the topic has other queues than before; it must be quick."""
        running, engine = self._running()
        await running.call(called, engine.watch, topic, changed)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset. Raises InvalidUse where the queue does not have it."""
        running, engine = self._running()
        await running.call(engine.seek, queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the oldest message."""
        running, engine = self._running()
        await running.call(engine.seek_to_begin, queue)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on from what comes next."""
        running, engine = self._running()
        await running.call(engine.seek_to_end, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Do not pull these; what is pulled already is still handed over."""
        running, engine = self._running()
        wanted = list(queues)
        running.post(lambda: engine.pause(wanted))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        running, engine = self._running()
        wanted = list(queues)
        running.post(lambda: engine.resume(wanted))

    # ---- offsets

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store now, with an answer from the broker, how far this consumer is: all that was handed over is consumed.

        With `offsets` these are stored instead.
        """
        running, engine = self._running()
        if offsets is None:
            self._came_back(engine)
        await running.call(engine.commit, offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of a queue."""
        running, engine = self._running()
        return await running.call(engine.committed, queue)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        running, engine = self._running()
        return await running.call(engine.queries.offset_at, queue, timestamp)


class _Messages:
    """Iterates over a consumer. No async generator: one that is left early would have to be closed by its user."""

    def __init__(self, consumer: AsyncLitePullConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await self._consumer._one()
        if message is None:
            raise StopAsyncIteration
        return message


class AsyncPullConsumer:
    """Pulls where and when it is told, under trio or asyncio; its user keeps the offsets.

    async with AsyncPullConsumer("group", namesrv="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("T"):
            found = await consumer.pull(queue, await consumer.offset(queue) or 0)
            consumer.note_offset(queue, found.next_offset)
    """

    def __init__(
        self,
        group: str,
        *,
        config: PullConfig | None = None,
        namesrv: str | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PullConfig by name. `world` is for tests."""
        self.config = configs.configured(PullConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._world = world
        self._now: tuple[Bridge, PullEngine] | None = None

    async def __aenter__(self) -> Self:
        running = bridge()
        engine = PullEngine(self.group, self.config, self._world or World())
        await running.start(engine.run)
        self._now = running, engine
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running()[0]
        self._now = None
        await running.stop(kind, error, trace)

    def _running(self) -> tuple[Bridge, PullEngine]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="use it in an async with block")
        return self._now

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        running, engine = self._running()
        return await running.call(engine.queues, topic)

    async def share(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that fall to this member of the group now."""
        running, engine = self._running()
        return await running.call(engine.share, topic)

    async def pull(
        self, queue: MessageQueue, offset: int, at_most: int = 32, selection: Selection = "*", *, hold: float = 0.0
    ) -> PullResult:
        """One pull from an offset; `hold` is for how many seconds the broker may wait for a message."""
        running, engine = self._running()
        return await running.call(engine.pull, queue, offset, at_most, selection, hold)

    async def offset(self, queue: MessageQueue) -> int | None:
        """The group's stored offset."""
        running, engine = self._running()
        return await running.call(engine.offset, queue)

    def note_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed; stored every few seconds, at the end, and by `commit`."""
        running, engine = self._running()
        running.post(lambda: engine.note_offset(queue, offset))

    async def commit(self) -> None:
        """Store what was noted now, with an answer from the broker."""
        running, engine = self._running()
        await running.call(engine.commit)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a message come again on the group's retry topic."""
        running, engine = self._running()
        await running.call(engine.send_back, message, delay_level)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message gets."""
        running, engine = self._running()
        return await running.call(engine.queries.max_offset, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        running, engine = self._running()
        return await running.call(engine.queries.min_offset, queue)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        running, engine = self._running()
        return await running.call(engine.queries.offset_at, queue, timestamp)
