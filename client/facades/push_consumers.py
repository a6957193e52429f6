"""The push consumers, for threads and for event loops.

Java: client/consumer/DefaultMQPushConsumer.java
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from rocketlet.client import namespace
from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import Finished
from rocketlet.client.consuming.consume_results import (
    AsyncBatchListener,
    AsyncListener,
    BatchListener,
    ConsumeContext,
    Listener,
)
from rocketlet.client.consuming.consume_workers import Workers
from rocketlet.client.consuming.push_consumer import PushEngine
from rocketlet.client.consuming.selector import Selection, check_selection
from rocketlet.client.errors import InvalidUse
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import InThreads, OnEventLoop, Subscribed, engine_method
from rocketlet.client.facades.thread_bridge import ThreadBridge
from rocketlet.client.hooks import ConsumeHook, hooked
from rocketlet.client.talking.session import World
from rocketlet.client.validators import check_callable, check_name, check_seconds, checked_hooks
from rocketlet.common.message import MessageQueue, ReceivedMessage

_STILL_ALIVE = 1.0  # how often a wait without time-out checks that the engine is alive

ListenerT = TypeVar("ListenerT")
BatchListenerT = TypeVar("BatchListenerT")


class Pushed(Subscribed[PushEngine, PushConfig], Generic[ListenerT, BatchListenerT]):
    """The methods of every push consumer."""

    _config_type = PushConfig
    _may_be_called_back = True

    def __init__(
        self,
        group: str,
        listener: ListenerT | None = None,
        *,
        batch_listener: BatchListenerT | None = None,
        topics: Mapping[str, Selection] | None = None,
        config: PushConfig | None = None,
        namesrv: str | None = None,
        hooks: Sequence[ConsumeHook] = (),
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PushConfig by name. `world` is for tests."""
        if (listener is None) == (batch_listener is None):
            raise InvalidUse("a push consumer needs a listener", advice="give it one: listener or batch_listener")
        kind, given = ("batch listener", batch_listener) if listener is None else ("listener", listener)
        check_callable(kind, given, in_threads=isinstance(self, InThreads))
        super().__init__(group, topics, config=config, namesrv=namesrv, world=world, **settings)
        self._listener: Any = listener
        self._batch_listener: Any = batch_listener
        self._hooks = checked_hooks(hooks, "before_consume", "after_consume")

    def _make_engine(self, bridge: Bridge, world: World) -> PushEngine:
        listener = self._listener

        def call_with_one(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> Any:
            return listener(messages[0])

        call = self._batch_listener or call_with_one

        def workers(finished: Finished, hooks: Sequence[ConsumeHook]) -> Workers:
            hooked_call = call
            if hooks:
                hooked_call = bridge.listener(hooked(bridge.user_function(call), hooks, self.group, bridge.time))
            return bridge.workers(hooked_call, self.config.threads, finished, f"ConsumeMessageThread_{self.group}")

        batch = self.config.batch if self._batch_listener is not None else 1
        engine = PushEngine(self.group, self.config, world, workers=workers, batch=batch, hooks=self._hooks)
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        return engine

    # ---- what it consumes

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Subscribe to a topic: all of it, some tags (`"A || B"`), or what an `Sql` condition selects. At any time."""
        check_selection(topic, selection)
        check_name(namespace.wrap(self.config.namespace, topic))
        self._topics[topic] = selection
        if self._now is not None:
            bridge, engine = self._now
            bridge.call_soon(engine.subscribe, topic, selection)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from it."""
        check_name(topic)
        self._topics.pop(topic, None)
        if self._now is not None:
            bridge, engine = self._now
            bridge.call_soon(engine.unsubscribe, topic)

    def suspend(self) -> None:
        """Stop pulling; messages pulled already, and answers that the broker holds, are still consumed."""
        bridge, engine = self._running()
        bridge.call_soon(engine.suspend)

    def resume(self) -> None:
        """Resume pulling."""
        bridge, engine = self._running()
        bridge.call_soon(engine.resume)

    commit = engine_method(PushEngine.commit)
    lag = engine_method(PushEngine.lag)

    def queues(self) -> set[MessageQueue]:
        """The queues that this consumer holds now."""
        return self._running()[1].assignment()


class PushConsumer(Pushed[Listener, BatchListener], InThreads):
    """Calls a listener with the messages of its topics, in threads of its own.

        def listener(message):
            print(message.body)

        with PushConsumer("group", listener, topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            consumer.wait()

    A listener that returns has consumed its message; one that raises, or returns `Later()`, gets it again.
    """

    def wait(self, timeout: float | None = None) -> None:
        """Sleep while it consumes: for this long, or until Ctrl-C. Raises EngineFailed if it dies."""
        if timeout is not None:
            check_seconds("timeout", timeout)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        sleeping = threading.Event()
        while (remaining := deadline - time.monotonic()) > 0:
            bridge, _ = self._running()
            assert isinstance(bridge, ThreadBridge)
            bridge.run.check()
            sleeping.wait(min(remaining, _STILL_ALIVE))


class AsyncPushConsumer(Pushed[AsyncListener, AsyncBatchListener], OnEventLoop):
    """Calls a listener with the messages of its topics, under trio or asyncio.

        async def listener(message):
            print(message.body)

        async with AsyncPushConsumer("group", listener, topics={"T": "*"}, namesrv="127.0.0.1:9876"):
            await trio.sleep_forever()

    A listener that returns has consumed its message; one that raises, or returns `Later()`, gets it again.
    """
