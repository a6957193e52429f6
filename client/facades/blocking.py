"""Producers for plain threads: one object, shared by as many threads as like.

A send is prepared in its caller's thread. A thread that sends alone then writes and reads itself (`direct_line`). Else
the send goes over to the engine's loop in a deque, together with whatever other threads send at that moment, and its
thread sleeps on a bare lock until the answer is there.

Java: client/producer/DefaultMQProducer.java, TransactionMQProducer.java
"""

from __future__ import annotations

import logging
import os
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import trio

from rocketlet.client import config as configs
from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import ClientClosed, ClientError, InvalidUse
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.client.hooks import SendHook
from rocketlet.client.sending.direct_line import DirectPath
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.pending_send import PendingSend
from rocketlet.client.sending.producer import ProducerEngine
from rocketlet.client.sending.queue_selection import Selector
from rocketlet.client.sending.request_reply import DEFAULT_REQUEST_TIMEOUT, reply_to
from rocketlet.client.sending.send_result import SendResult, TransactionState
from rocketlet.client.sending.transaction_producer import (
    Checker,
    Executor,
    Transaction,
    TransactionEngine,
    outcome_of_half,
)
from rocketlet.client.talking.session import World
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import RemotingError

log = logging.getLogger("rocketlet.client.producer")

_CHECKERS = 4  # of a transaction producer at work at once


class SendPort:
    """Where threads hand over their sends. One a producer; the Sender of its sends."""

    def __init__(self, engine: ProducerEngine, thread: EngineThread, run: HostedRun, most: int) -> None:
        self._pipeline = engine.pipeline
        self._thread = thread
        self._run = run
        self._most = most
        # Room for so many wakes a thread that waits for it. Few enough that the broker has work while the thread makes
        # the next sends: with half of 1024 they take turns, at half of the rate.
        self._step = max(1, min(128, most // 4))
        self._handed: deque[PendingSend] = deque()
        self._posted = False
        self._for_room: deque[LockType] = deque()
        self._pipeline.settled = self._settled
        self._direct = DirectPath(engine.session, engine.config, thread.now, self._carry_on)

    # ---- in threads

    def send(self, pending: PendingSend) -> SendResult:
        """Have it sent and wait: by this thread itself if it sends alone, else with the sends of the others."""
        self._run.check()
        alone = not self._handed and not self._pipeline.on_their_way
        if not (alone and self._direct.usable and self._direct.send(pending)):
            self.hand_over(pending)
        return pending.result()

    def _carry_on(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        self._run.check()
        self._thread.post(partial(self._pipeline.carry_on, pending, answer))

    def close(self) -> None:
        """No more sends; who waits for room may see that."""
        self._direct.close()
        while self._for_room:
            self._for_room.popleft().release()

    def hand_over(self, pending: PendingSend) -> None:
        """Have it sent. Raises ClientClosed, EngineFailed."""
        self._handed.append(pending)
        if not self._posted:
            self._posted = True
            self._run.check()
            self._thread.post(self._take)

    def wait_for_room(self) -> None:
        """Until fewer than `max_in_flight` are on their way, and no body waits for others to make room."""
        while self._is_full():
            self._run.check()
            lock = allocate_lock()
            lock.acquire()
            self._for_room.append(lock)
            if self._is_full():
                lock.acquire()

    def _is_full(self) -> bool:
        pipeline = self._pipeline
        return len(pipeline.on_their_way) + len(self._handed) >= self._most or pipeline.is_crowded

    # ---- on the loop

    def _take(self) -> None:
        self._posted = False
        handed, submit = self._handed, self._pipeline.submit
        while handed:
            submit(handed.popleft())

    def _settled(self) -> None:
        room = self._most - len(self._pipeline.on_their_way)
        if self._for_room and room >= self._step and not self._pipeline.is_crowded:
            while self._for_room:
                self._for_room.popleft().release()

    # ---- as Sender

    def answered(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        """See Sender."""
        self._pipeline.answered(pending, answer)

    def callback(self, function: Callable[[PendingSend], object], pending: PendingSend) -> Callable[[], object]:
        """See Sender. In the callback thread, so that it may send and wait."""
        return partial(self._thread.call_back, partial(function, pending))

    def wait_for(self, pending: PendingSend) -> Awaitable[None]:
        """See Sender."""
        raise InvalidUse("a send of a blocking producer cannot be awaited", advice="use result(), or an AsyncProducer")


class Producer:
    """Sends messages, from any number of threads.

    with Producer("group", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("T", b"hi"))
    """

    def __init__(
        self,
        group: str,
        config: ProducerConfig | None = None,
        *,
        namesrv: str | None = None,
        hooks: Sequence[SendHook] = (),
        **settings: Any,
    ) -> None:
        """`settings` are single fields of ProducerConfig by name."""
        self.config = configs.configured(ProducerConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._hooks = tuple(hooks)
        self._now: tuple[ProducerEngine, EngineThread, HostedRun, SendPort] | None = None

    # ---- life

    def start(self) -> None:
        """Begin; `with` does it. The first send asks for routes, so a wrong name server shows there."""
        if self._now is not None:
            return
        thread = EngineThread.acquire()
        try:
            engine = self._make_engine(thread)
            run = HostedRun(thread, f"producer {self.group}")
            run.start(engine.run)
        except BaseException:
            thread.release()
            raise
        self._now = engine, thread, run, SendPort(engine, thread, run, self.config.max_in_flight)

    def _make_engine(self, thread: EngineThread) -> ProducerEngine:
        return ProducerEngine(self.group, self.config, World(), self._hooks)

    def shutdown(self) -> None:
        """Wait for what is on its way, take leave of the brokers, end. Raises EngineFailed if it had died."""
        if self._now is None:
            return
        (_, thread, run, port), self._now = self._now, None
        try:
            run.stop()
        finally:
            port.close()
            thread.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _running(self) -> tuple[ProducerEngine, EngineThread, HostedRun, SendPort]:
        if self._now is None:
            raise ClientClosed("the producer is not running", advice="start() it, or use it in a with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[0].session.client_id

    # ---- sending

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored, trying up to `retries` times more within `timeout`.

            result = producer.send(Message("orders", b"...", tags="new", keys=["order-7"]))

        `queue` fixes where it goes; `selector(queues, message, argument)` chooses, and so does the message's
        `sharding_key`; then it is tried there only. Raises InvalidMessage before anything is sent; SendFailed, Refused,
        TimedOut, Unreachable or NoRoute after the last try.
        """
        engine, thread, _, port = self._running()
        thread.check_thread()
        pending = engine.preparer.prepare(
            port, message, queue=queue, selector=selector, argument=argument, timeout=timeout
        )
        return port.send(pending)

    def send_soon(
        self,
        message: Message,
        callback: Callable[[PendingSend], object] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> PendingSend:
        """Begin to send a message, and go on; `result()` of what is returned waits. Many may be on their way at once.

            pending = [producer.send_soon(Message("T", b"%d" % n)) for n in range(100)]
            results = [each.result() for each in pending]

        Messages to one queue are stored in the order of these calls unless one of them has to be tried again. Waits
        while `max_in_flight` are on their way. `callback(pending)` is called in a thread of its own when it is done.
        """
        engine, _, _, port = self._running()
        pending = engine.preparer.prepare(
            port, message, queue=queue, selector=selector, argument=argument, timeout=timeout
        )
        if callback is not None:
            pending.add_done_callback(callback)
        port.wait_for_room()
        port.hand_over(pending)
        return pending

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> None:
        """Send a message that nobody answers: it may be lost, and nobody would know.

            producer.send_oneway(Message("metrics", b"load 0.7"))

        Returns once it is handed to the connection. Raises NoRoute and Unreachable.
        """
        engine, thread, _, port = self._running()
        thread.check_thread()
        pending = engine.preparer.prepare(port, message, queue=queue, selector=selector, argument=argument, oneway=True)
        port.hand_over(pending)
        pending.result()

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send many small messages of one topic in one request; all are stored in one queue, or none.

            producer.send_batch([Message("T", b"a"), Message("T", b"b")])

        `client.split(messages)` cuts what is too large for one request.
        """
        engine, thread, _, port = self._running()
        thread.check_thread()
        pending = engine.preparer.prepare_batch(port, messages, queue=queue, timeout=timeout)
        return port.send(pending)

    def request(
        self,
        message: Message,
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it. Raises RequestTimedOut.

        reply = producer.request(Message("prices", b"ACME"), timeout=5)
        """
        engine, thread, _, port = self._running()
        extra = engine.requests.properties(timeout)
        pending = engine.preparer.prepare(
            port, message, queue=queue, selector=selector, argument=argument, timeout=timeout, extra=extra
        )
        return thread.call(engine.requests.request, pending, extra[names.CORRELATION_ID], timeout)

    def request_soon(
        self,
        message: Message,
        callback: Callable[[ReceivedMessage | None, ClientError | None], object],
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
    ) -> None:
        """Send a request, and have `callback(reply, error)` called, in a thread of its own, with one of the two.

        producer.request_soon(Message("prices", b"ACME"), lambda reply, error: print(reply or error))
        """
        engine, thread, _, port = self._running()
        extra = engine.requests.properties(timeout)
        pending = engine.preparer.prepare(port, message, timeout=timeout, extra=extra)

        def done(reply: Any, error: BaseException | None) -> None:
            failure = error if error is None or isinstance(error, ClientError) else ClientError(repr(error))
            thread.call_back(lambda: callback(reply, failure))

        correlation = extra[names.CORRELATION_ID]
        thread.spawn(engine.requests.request, (pending, correlation, timeout), done, trio.CancelScope())

    def reply(self, request: ReceivedMessage, body: bytes) -> None:
        """Answer a message that was sent by `request`; from within its listener, say.

        def listener(message):
            producer.reply(message, b"42")
        """
        engine, thread, _, _ = self._running()
        message, extra = reply_to(request, body)
        sender = InnerProducer(engine.session, engine.group)
        thread.call(sender.reply, message, extra, self.config.send_timeout)

    # ---- asking

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic may go to."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.publish_queues, topic)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message gets."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.min_offset, queue)

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.offset_at, queue, timestamp)

    def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the queue's oldest message was stored, in milliseconds; -1 where it has none."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.earliest_store_time, queue)

    def view(self, message_id: str, topic: str = "") -> ReceivedMessage:
        """One message by its offset message id, or with its topic also by its unique id."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.view, message_id, topic)

    def query(
        self, topic: str, key: str, at_most: int = 64, begin: int = 0, end: int = 1 << 62
    ) -> list[ReceivedMessage]:
        """Messages of a topic by key or unique id, newest first; times in milliseconds."""
        engine, thread, _, _ = self._running()
        return thread.call(engine.queries.query, topic, key, at_most, begin, end)

    def create_topic(self, topic: str, queues: int = 8, perm: int = 6) -> None:
        """Create or change a topic on all brokers."""
        engine, thread, _, _ = self._running()
        thread.call(engine.queries.create_topic, topic, queues, perm)


class TransactionProducer(Producer):
    """Sends messages that are delivered only if a local transaction succeeds, from any number of threads.

        def execute(transaction):
            book(transaction.message)
            return TransactionState.COMMIT

        def check(message):
            return TransactionState.COMMIT if booked(message.message_id) else TransactionState.ROLLBACK

        with TransactionProducer("group", check, namesrv="127.0.0.1:9876") as producer:
            producer.send_in_transaction(Message("T", b"booking 7"), execute)

    The checker is asked about transactions of the whole group, also those of clients that have died; it runs in
    threads of the client's.
    """

    def __init__(
        self,
        group: str,
        checker: Checker,
        config: ProducerConfig | None = None,
        *,
        namesrv: str | None = None,
        hooks: Sequence[SendHook] = (),
        **settings: Any,
    ) -> None:
        super().__init__(group, config, namesrv=namesrv, hooks=hooks, **settings)
        self._checker = checker

    def _make_engine(self, thread: EngineThread) -> ProducerEngine:
        limiter = trio.CapacityLimiter(_CHECKERS)

        async def check(message: ReceivedMessage) -> TransactionState | None:
            return await trio.to_thread.run_sync(self._checker, message, limiter=limiter)

        return TransactionEngine(self.group, self.config, World(), check, self._hooks)

    def send_in_transaction(
        self,
        message: Message,
        executor: Executor,
        argument: Any = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Store a message half, run the local transaction in this thread, and tell the broker how it came out.

        `result.state` says it. An executor that raises or returns nothing leaves it UNKNOWN: the checker is asked
        later. Raises what `send` raises; then the executor was not run.
        """
        engine, thread, _, port = self._running()
        assert isinstance(engine, TransactionEngine)
        thread.check_thread()
        pending = engine.prepare_half(port, message, queue=queue, timeout=timeout)
        port.hand_over(pending)
        result = pending.result()
        state, failure = outcome_of_half(result), None
        if state is None:
            try:
                state = executor(Transaction(message, result.message_id, argument))
            except Exception as error:
                log.exception("the local executor raised on message %s; its transaction is unknown", result.message_id)
                failure = error
        return thread.call(engine.end, result, state or TransactionState.UNKNOWN, failure)
