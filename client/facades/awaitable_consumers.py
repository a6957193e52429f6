"""The push consumer for event loops: the same class under trio and under asyncio, as an `async with` block.

Java: none; the awaitable twin of `blocking_consumers`
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rocketlet.client import config as configs
from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import Finished
from rocketlet.client.consuming.consume_results import AsyncBatchListener, AsyncListener, ConsumeContext, ListenerAnswer
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.push_consumer import PushEngine
from rocketlet.client.consuming.selector import Selection
from rocketlet.client.errors import ClientClosed, InvalidUse
from rocketlet.client.facades.bridges import Bridge, bridge
from rocketlet.client.hooks import ConsumeHook, hooked_async
from rocketlet.client.talking.session import World
from rocketlet.common.message import MessageQueue, ReceivedMessage


class AsyncPushConsumer:
    """Calls a listener with the messages of its topics, under trio or asyncio.

        async def listener(message):
            print(message.body)

        async with AsyncPushConsumer("group", listener, topics={"T": "*"}, namesrv="127.0.0.1:9876"):
            await trio.sleep_forever()

    A listener that returns has consumed its message; one that raises, or returns `Later()`, gets it again.
    """

    def __init__(
        self,
        group: str,
        listener: AsyncListener | None = None,
        *,
        batch_listener: AsyncBatchListener | None = None,
        topics: dict[str, Selection] | None = None,
        config: PushConfig | None = None,
        namesrv: str | None = None,
        hooks: Sequence[ConsumeHook] = (),
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PushConfig by name. `world` is for tests."""
        if (listener is None) == (batch_listener is None):
            raise InvalidUse("a push consumer needs a listener", advice="give it one: listener or batch_listener")
        self.config = configs.configured(PushConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._listener = listener
        self._batch_listener = batch_listener
        self._hooks = tuple(hooks)
        self._topics: dict[str, Selection] = dict(topics or {})
        self._world = world
        self._now: tuple[Bridge, PushEngine] | None = None

    async def __aenter__(self) -> Self:
        running = bridge()
        world = self._world or World()

        def workers(finished: Finished, hooks: Sequence[ConsumeHook]) -> Workers:
            call = hooked_async(self._call, hooks, self.group, world.clock)
            return running.workers(call, self.config.threads, finished)

        batch = self.config.batch if self._batch_listener is not None else 1
        engine = PushEngine(self.group, self.config, world, workers=workers, batch=batch, hooks=self._hooks)
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        await running.start(engine.run)
        self._now = running, engine
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running()[0]
        self._now = None
        await running.stop(kind, error, trace)

    async def _call(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ListenerAnswer:
        if self._batch_listener is not None:
            return await self._batch_listener(messages, context)
        assert self._listener is not None
        return await self._listener(messages[0])

    def _running(self) -> tuple[Bridge, PushEngine]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="use it in an async with block")
        return self._now

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Want a topic: all of it, some tags (`"A || B"`), or what an `Sql` condition selects. At any time."""
        self._topics[topic] = selection
        if self._now is not None:
            running, engine = self._now
            running.post(lambda: engine.subscribe(topic, selection))

    def unsubscribe(self, topic: str) -> None:
        """No longer want it."""
        self._topics.pop(topic, None)
        if self._now is not None:
            running, engine = self._now
            running.post(lambda: engine.unsubscribe(topic))

    def suspend(self) -> None:
        """Stop pulling; what is pulled already is still consumed."""
        running, engine = self._running()
        running.post(engine.suspend)

    def resume(self) -> None:
        """Go on pulling."""
        running, engine = self._running()
        running.post(engine.resume)

    async def commit(self) -> None:
        """Commit what is consumed now, not at the next round."""
        running, engine = self._running()
        await running.call(engine.persist)

    def queues(self) -> set[MessageQueue]:
        """The queues that are this consumer's now."""
        _, engine = self._running()
        return {engine.shown(queue) for queue, held in list(engine.rebalance.held.items()) if not held.dropped}

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[1].session.client_id
