"""The push consumer for plain threads.

Java: client/consumer/DefaultMQPushConsumer.java
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rocketlet.client import config as configs
from rocketlet.client.config import PushConfig
from rocketlet.client.consuming.consume_job import Finished
from rocketlet.client.consuming.consume_results import BatchListener, ConsumeContext, Listener, ListenerAnswer
from rocketlet.client.consuming.consume_workers import ThreadWorkers
from rocketlet.client.consuming.push_consumer import PushEngine
from rocketlet.client.consuming.selector import Selection
from rocketlet.client.errors import ClientClosed, InvalidUse
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.facades.plain_calls import called
from rocketlet.client.hooks import ConsumeHook, hooked
from rocketlet.client.talking.session import World
from rocketlet.common.message import MessageQueue, ReceivedMessage

_STILL_ALIVE = 1.0  # how often a wait without end looks whether the engine lives


class PushConsumer:
    """Calls a listener with the messages of its topics, in threads of its own.

        def listener(message):
            print(message.body)

        with PushConsumer("group", listener, topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            consumer.wait()

    A listener that returns has consumed its message; one that raises, or returns `Later()`, gets it again.
    """

    def __init__(
        self,
        group: str,
        listener: Listener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        topics: Mapping[str, Selection] | None = None,
        config: PushConfig | None = None,
        namesrv: str | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PushConfig by name."""
        if (listener is None) == (batch_listener is None):
            raise InvalidUse("a push consumer needs a listener", advice="give it one: listener or batch_listener")
        self.config = configs.configured(PushConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._listener = listener
        self._batch_listener = batch_listener
        self._hooks = tuple(hooks)
        self._topics: dict[str, Selection] = dict(topics or {})
        self._now: tuple[PushEngine, EngineThread, HostedRun] | None = None

    # ---- life

    def start(self) -> None:
        """Begin to consume; `with` does it. Raises Refused where the broker cannot filter as asked."""
        if self._now is not None:
            return
        thread = EngineThread.acquire()
        try:
            engine = self._make_engine(thread)
            run = HostedRun(thread, f"consumer {self.group}")
            run.start(engine.run)
        except BaseException:
            thread.release()
            raise
        self._now = engine, thread, run

    def _make_engine(self, thread: EngineThread) -> PushEngine:
        world = World()

        def workers(finished: Finished, hooks: Sequence[ConsumeHook]) -> ThreadWorkers:
            call = hooked(self._call, hooks, self.group, world.clock)
            return ThreadWorkers(call, self.config.threads, finished, thread.post, f"ConsumeMessageThread_{self.group}")

        batch = self.config.batch if self._batch_listener is not None else 1
        engine = PushEngine(self.group, self.config, world, workers=workers, batch=batch, hooks=self._hooks)
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        return engine

    def _call(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ListenerAnswer:
        if self._batch_listener is not None:
            return self._batch_listener(messages, context)
        assert self._listener is not None
        return self._listener(messages[0])

    def shutdown(self) -> None:
        """Stop pulling, wait for listeners at work, commit, take leave. Raises EngineFailed if it had died."""
        if self._now is None:
            return
        (_, thread, run), self._now = self._now, None
        try:
            run.stop()
        finally:
            thread.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def wait(self, timeout: float | None = None) -> None:
        """Sleep while it consumes: for so long, or until Ctrl-C. Raises EngineFailed if it dies."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        sleeping = threading.Event()
        while (left := until - time.monotonic()) > 0:
            self._running()[2].check()
            sleeping.wait(min(left, _STILL_ALIVE))

    def _running(self) -> tuple[PushEngine, EngineThread, HostedRun]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="start() it, or use it in a with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[0].session.client_id

    # ---- what it consumes

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Want a topic: all of it, some tags (`"A || B"`), or what an `Sql` condition selects. At any time."""
        self._topics[topic] = selection
        if self._now is not None:
            engine, thread, _ = self._now
            thread.call(called, engine.subscribe, topic, selection)

    def unsubscribe(self, topic: str) -> None:
        """No longer want it."""
        self._topics.pop(topic, None)
        if self._now is not None:
            engine, thread, _ = self._now
            thread.call(called, engine.unsubscribe, topic)

    def suspend(self) -> None:
        """Stop pulling; what is pulled already, and what the broker holds, is still consumed."""
        engine, thread, _ = self._running()
        thread.call(called, engine.suspend)

    def resume(self) -> None:
        """Go on pulling."""
        engine, thread, _ = self._running()
        thread.call(called, engine.resume)

    def commit(self) -> None:
        """Commit what is consumed now, not at the next round."""
        engine, thread, _ = self._running()
        thread.call(engine.persist)

    def queues(self) -> set[MessageQueue]:
        """The queues that are this consumer's now."""
        engine, _, _ = self._running()
        return {engine.shown(queue) for queue, held in list(engine.rebalance.held.items()) if not held.dropped}
