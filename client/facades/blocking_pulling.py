"""Consumers for plain threads that hand over messages when they are asked.

Java: client/consumer/DefaultLitePullConsumer.java, DefaultMQPullConsumer.java
"""

from __future__ import annotations

import math
import os
import threading
import time
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from rocketlet.client import config as configs
from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.lite_pull_consumer import LitePullEngine, QueuesChanged
from rocketlet.client.consuming.message_buffer import Batch
from rocketlet.client.consuming.pull_consumer import PullEngine
from rocketlet.client.consuming.selector import Selection
from rocketlet.client.errors import ClientClosed
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.facades.plain_calls import called
from rocketlet.client.sending.send_result import PullResult
from rocketlet.client.talking.session import World
from rocketlet.common.message import MessageQueue, ReceivedMessage

_STILL_ALIVE = 1.0  # how often a wait without end looks whether the engine lives


class LitePullConsumer:
    """Hands over messages when it is asked.

        with LitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
            for message in consumer:
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
        **settings: Any,
    ) -> None:
        """`settings` are single fields of PullConfig by name."""
        self.config = configs.configured(PullConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._topics = dict(topics or {})
        self._queues: tuple[list[MessageQueue], Selection] | None = None
        self._handed = threading.local()  # each thread comes back from what it was given itself
        self._now: tuple[LitePullEngine, EngineThread, HostedRun] | None = None

    # ---- life

    def start(self) -> None:
        """Begin to pull; `with` does it."""
        if self._now is not None:
            return
        thread = EngineThread.acquire()
        try:
            engine = self._make_engine()
            run = HostedRun(thread, f"consumer {self.group}")
            run.start(engine.run)
        except BaseException:
            thread.release()
            raise
        self._now = engine, thread, run
        if self._queues is not None:
            thread.call(engine.assign, *self._queues)

    def _make_engine(self) -> LitePullEngine:
        engine = LitePullEngine(self.group, self.config, World())
        for topic, selection in self._topics.items():
            engine.subscribe(topic, selection)
        return engine

    def shutdown(self) -> None:
        """Commit what was come back from, take leave, end. Raises EngineFailed if it had died."""
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
        if kind is None and self._now is not None:
            self._came_back(self._now[0])
        self.shutdown()

    def _running(self) -> tuple[LitePullEngine, EngineThread, HostedRun]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="start() it, or use it in a with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[0].session.client_id

    # ---- messages

    def poll(self, timeout: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of one queue, or none if none came in time. What the last poll gave is now consumed."""
        engine, _, run = self._running()
        self._came_back(engine)
        batch = self._next(engine, run, timeout)
        self._handed.batch = batch
        return [] if batch is None else list(batch.messages)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        engine, _, run = self._running()
        self._came_back(engine)
        while (batch := self._next(engine, run, math.inf)) is not None:
            handed = 0
            try:
                for message in batch.messages:
                    if batch.process_queue.dropped:
                        break
                    self._handed.batch = Batch(batch.process_queue, [message])
                    handed += 1
                    yield message
                    self._came_back(engine)
            finally:  # also where the loop over us is left early
                engine.buffer.put_back(Batch(batch.process_queue, batch.messages[handed:]))

    def _came_back(self, engine: LitePullEngine) -> None:
        handed: Batch | None = getattr(self._handed, "batch", None)
        if handed is not None:
            engine.finished.append(handed)
            self._handed.batch = None

    def _next(self, engine: LitePullEngine, run: HostedRun, timeout: float) -> Batch | None:
        buffer = engine.buffer
        batch = buffer.take()
        if batch is not None:
            return batch
        until = time.monotonic() + timeout
        while not buffer.closed:
            run.check()
            lock = allocate_lock()
            lock.acquire()
            waker = lock.release
            buffer.wakers.append(waker)
            if not buffer.batches and not buffer.closed:
                lock.acquire(timeout=max(0.0, min(until - time.monotonic(), _STILL_ALIVE)))
            buffer.stop_waiting(waker)
            batch = buffer.take()
            if batch is not None or time.monotonic() >= until:
                return batch
        return None

    # ---- queues

    def subscribe(self, topic: str, selection: Selection = "*") -> None:
        """Share a topic with the other members of the group; before the start or after."""
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

    def assign(self, queues: Iterable[MessageQueue], selection: Selection = "*") -> None:
        """Pull exactly these queues, whoever else does; before the start or after."""
        self._queues = list(queues), selection
        if self._now is not None:
            engine, thread, _ = self._now
            thread.call(engine.assign, *self._queues)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are pulled now."""
        return self._running()[0].assignment()

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        engine, thread, _ = self._running()
        return thread.call(engine.queries.queues, topic)

    def on_queues_changed(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(topic, queues)`, in the callback thread, when the topic has other queues than before."""
        engine, thread, _ = self._running()
        thread.call(called, engine.watch, topic, lambda t, q: thread.call_back(lambda: changed(t, q)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset. Raises InvalidUse where the queue does not have it."""
        engine, thread, _ = self._running()
        thread.call(engine.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the oldest message."""
        engine, thread, _ = self._running()
        thread.call(engine.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on from what comes next."""
        engine, thread, _ = self._running()
        thread.call(engine.seek_to_end, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Do not pull these; what is pulled already is still handed over."""
        engine, thread, _ = self._running()
        thread.call(called, engine.pause, list(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again."""
        engine, thread, _ = self._running()
        thread.call(called, engine.resume, list(queues))

    # ---- offsets

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store now, with an answer from the broker, how far this consumer is: all that was handed over is consumed.

        With `offsets` these are stored instead.
        """
        engine, thread, _ = self._running()
        if offsets is None:
            self._came_back(engine)
        thread.call(engine.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of a queue."""
        engine, thread, _ = self._running()
        return thread.call(engine.committed, queue)

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        engine, thread, _ = self._running()
        return thread.call(engine.queries.offset_at, queue, timestamp)


class PullConsumer:
    """Pulls where and when it is told; its user keeps the offsets.

    with PullConsumer("group", namesrv="127.0.0.1:9876") as consumer:
        for queue in consumer.queues("T"):
            found = consumer.pull(queue, consumer.offset(queue) or 0)
            consumer.note_offset(queue, found.next_offset)
    """

    def __init__(
        self, group: str, *, config: PullConfig | None = None, namesrv: str | None = None, **settings: Any
    ) -> None:
        """`settings` are single fields of PullConfig by name."""
        self.config = configs.configured(PullConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._now: tuple[PullEngine, EngineThread, HostedRun] | None = None

    def start(self) -> None:
        """Begin; `with` does it."""
        if self._now is not None:
            return
        thread = EngineThread.acquire()
        try:
            engine = PullEngine(self.group, self.config, World())
            run = HostedRun(thread, f"consumer {self.group}")
            run.start(engine.run)
        except BaseException:
            thread.release()
            raise
        self._now = engine, thread, run

    def shutdown(self) -> None:
        """Commit what was noted, take leave, end. Raises EngineFailed if it had died."""
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

    def _running(self) -> tuple[PullEngine, EngineThread, HostedRun]:
        if self._now is None:
            raise ClientClosed("the consumer is not running", advice="start() it, or use it in a with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[0].session.client_id

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        engine, thread, _ = self._running()
        return thread.call(engine.queues, topic)

    def share(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that fall to this member of the group now."""
        engine, thread, _ = self._running()
        return thread.call(engine.share, topic)

    def pull(
        self, queue: MessageQueue, offset: int, at_most: int = 32, selection: Selection = "*", *, hold: float = 0.0
    ) -> PullResult:
        """One pull from an offset; `hold` is for how many seconds the broker may wait for a message."""
        engine, thread, _ = self._running()
        return thread.call(engine.pull, queue, offset, at_most, selection, hold)

    def offset(self, queue: MessageQueue) -> int | None:
        """The group's stored offset."""
        engine, thread, _ = self._running()
        return thread.call(engine.offset, queue)

    def note_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed; stored every few seconds, at the end, and by `commit`."""
        engine, thread, _ = self._running()
        thread.post(lambda: engine.note_offset(queue, offset))

    def commit(self) -> None:
        """Store what was noted now, with an answer from the broker."""
        engine, thread, _ = self._running()
        thread.call(engine.commit)

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a message come again on the group's retry topic."""
        engine, thread, _ = self._running()
        thread.call(engine.send_back, message, delay_level)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message gets."""
        engine, thread, _ = self._running()
        return thread.call(engine.queries.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        engine, thread, _ = self._running()
        return thread.call(engine.queries.min_offset, queue)

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        engine, thread, _ = self._running()
        return thread.call(engine.queries.offset_at, queue, timestamp)
