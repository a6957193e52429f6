"""Producers for event loops: the same classes under trio and under asyncio, as `async with` blocks.

Java: none; the awaitable twins of `blocking`
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rocketlet.client import config as configs
from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import ClientClosed, TooManyInFlight
from rocketlet.client.facades.bridges import Bridge, bridge
from rocketlet.client.hooks import SendHook
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.pending_send import PendingSend
from rocketlet.client.sending.producer import ProducerEngine
from rocketlet.client.sending.queue_selection import Selector
from rocketlet.client.sending.request_reply import DEFAULT_REQUEST_TIMEOUT, reply_to
from rocketlet.client.sending.send_result import SendResult, TransactionState
from rocketlet.client.sending.transaction_producer import (
    AsyncChecker,
    AsyncExecutor,
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


class _Sender:
    """What a pending send knows of its client."""

    def __init__(self, engine: ProducerEngine, bridge: Bridge) -> None:
        self.callback = bridge.callback
        self.wait_for = bridge.wait_for
        self._pipeline = engine.pipeline

    def answered(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        self._pipeline.answered(pending, answer)


class AsyncProducer:
    """Sends messages, from trio or asyncio; for as many tasks as like.

    async with AsyncProducer("group", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("T", b"hi"))
    """

    def __init__(
        self,
        group: str,
        config: ProducerConfig | None = None,
        *,
        namesrv: str | None = None,
        hooks: Sequence[SendHook] = (),
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of ProducerConfig by name. `world` is for tests."""
        self.config = configs.configured(ProducerConfig, config, namesrv, settings, os.environ)
        self.group = group
        self._hooks = tuple(hooks)
        self._world = world
        self._now: tuple[Bridge, ProducerEngine, _Sender] | None = None

    async def __aenter__(self) -> Self:
        running = bridge()
        engine = self._make_engine(running)
        await running.start(engine.run)
        self._now = running, engine, _Sender(engine, running)
        return self

    def _make_engine(self, bridge: Bridge) -> ProducerEngine:
        return ProducerEngine(self.group, self.config, self._world or World(), self._hooks)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running()[0]
        self._now = None
        await running.stop(kind, error, trace)

    def _running(self) -> tuple[Bridge, ProducerEngine, _Sender]:
        if self._now is None:
            raise ClientClosed("the producer is not running", advice="use it in an async with block")
        return self._now

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member of the group."""
        return self._running()[1].session.client_id

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored, trying up to `retries` times more within `timeout`.

            result = await producer.send(Message("orders", b"...", tags="new", keys=["order-7"]))

        `queue` fixes where it goes; `selector(queues, message, argument)` chooses, and so does the message's
        `sharding_key`; then it is tried there only. Raises InvalidMessage before anything is sent; SendFailed, Refused,
        TimedOut, Unreachable or NoRoute after the last try. Cancelled, it stops waiting; the message may be stored.
        """
        bridge, engine, sender = self._running()
        pending = engine.preparer.prepare(
            sender, message, queue=queue, selector=selector, argument=argument, timeout=timeout
        )
        bridge.post(lambda: engine.pipeline.submit(pending))
        return await pending

    def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> PendingSend:
        """Begin to send a message; await what is returned, or give it a callback. Many may be on their way at once.

            pending = [producer.send_soon(Message("T", b"%d" % n)) for n in range(100)]
            results = [await each for each in pending]

        Messages to one queue are stored in the order of these calls unless one of them has to be tried again. Raises
        TooManyInFlight where `max_in_flight` are on their way.
        """
        bridge, engine, sender = self._running()
        if len(engine.pipeline.on_their_way) >= self.config.max_in_flight:
            raise TooManyInFlight(
                f"{self.config.max_in_flight} sends are on their way",
                topic=message.topic,
                advice="await some of them first, or raise max_in_flight",
            )
        pending = engine.preparer.prepare(
            sender, message, queue=queue, selector=selector, argument=argument, timeout=timeout
        )
        bridge.post(lambda: engine.pipeline.submit(pending))
        return pending

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> None:
        """Send a message that nobody answers: it may be lost, and nobody would know.

            await producer.send_oneway(Message("metrics", b"load 0.7"))

        Returns once it is handed to the connection. Raises NoRoute and Unreachable.
        """
        bridge, engine, sender = self._running()
        pending = engine.preparer.prepare(
            sender, message, queue=queue, selector=selector, argument=argument, oneway=True
        )
        bridge.post(lambda: engine.pipeline.submit(pending))
        await pending

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send many small messages of one topic in one request; all are stored in one queue, or none.

            await producer.send_batch([Message("T", b"a"), Message("T", b"b")])

        `client.split(messages)` cuts what is too large for one request.
        """
        bridge, engine, sender = self._running()
        pending = engine.preparer.prepare_batch(sender, messages, queue=queue, timeout=timeout)
        bridge.post(lambda: engine.pipeline.submit(pending))
        return await pending

    async def request(
        self,
        message: Message,
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it. Raises RequestTimedOut.

        reply = await producer.request(Message("prices", b"ACME"), timeout=5)
        """
        bridge, engine, sender = self._running()
        extra = engine.requests.properties(timeout)
        pending = engine.preparer.prepare(
            sender, message, queue=queue, selector=selector, argument=argument, timeout=timeout, extra=extra
        )
        return await bridge.call(engine.requests.request, pending, extra[names.CORRELATION_ID], timeout)

    async def reply(self, request: ReceivedMessage, body: bytes) -> None:
        """Answer a message that was sent by `request`; from within its listener, say.

        async def listener(message):
            await producer.reply(message, b"42")
        """
        bridge, engine, _ = self._running()
        message, extra = reply_to(request, body)
        await bridge.call(InnerProducer(engine.session, engine.group).reply, message, extra, self.config.send_timeout)

    # ---- asking

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic may go to."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.publish_queues, topic)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message gets."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.queries.max_offset, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.queries.min_offset, queue)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset nearest to a time in milliseconds."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.queries.offset_at, queue, timestamp)

    async def view(self, message_id: str, topic: str = "") -> ReceivedMessage:
        """One message by its offset message id, or with its topic also by its unique id."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.queries.view, message_id, topic)

    async def query(
        self, topic: str, key: str, at_most: int = 64, begin: int = 0, end: int = 1 << 62
    ) -> list[ReceivedMessage]:
        """Messages of a topic by key or unique id, newest first; times in milliseconds."""
        bridge, engine, _ = self._running()
        return await bridge.call(engine.queries.query, topic, key, at_most, begin, end)

    async def create_topic(self, topic: str, queues: int = 8, perm: int = 6) -> None:
        """Create or change a topic on all brokers."""
        bridge, engine, _ = self._running()
        await bridge.call(engine.queries.create_topic, topic, queues, perm)


class AsyncTransactionProducer(AsyncProducer):
    """Sends messages that are delivered only if a local transaction succeeds, from trio or asyncio.

        async def execute(transaction):
            await book(transaction.message)
            return TransactionState.COMMIT

        async def check(message):
            return TransactionState.COMMIT if await booked(message.message_id) else TransactionState.ROLLBACK

        async with AsyncTransactionProducer("group", check, namesrv="127.0.0.1:9876") as producer:
            await producer.send_in_transaction(Message("T", b"booking 7"), execute)

    The checker is asked about transactions of the whole group, also those of clients that have died.
    """

    def __init__(
        self,
        group: str,
        checker: AsyncChecker,
        config: ProducerConfig | None = None,
        *,
        namesrv: str | None = None,
        hooks: Sequence[SendHook] = (),
        world: World | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(group, config, namesrv=namesrv, hooks=hooks, world=world, **settings)
        self._checker = checker

    def _make_engine(self, bridge: Bridge) -> ProducerEngine:
        check = bridge.user_call(self._checker)
        return TransactionEngine(self.group, self.config, self._world or World(), check, self._hooks)

    async def send_in_transaction(
        self,
        message: Message,
        executor: AsyncExecutor,
        argument: Any = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Store a message half, run the local transaction, and tell the broker how it came out; `result.state` says it.

        An executor that raises or returns nothing leaves it UNKNOWN: the checker is asked later. Raises what `send`
        raises; then the executor was not run.
        """
        bridge, engine, sender = self._running()
        assert isinstance(engine, TransactionEngine)
        pending = engine.prepare_half(sender, message, queue=queue, timeout=timeout)
        bridge.post(lambda: engine.pipeline.submit(pending))
        result = await pending
        state, failure = outcome_of_half(result), None
        if state is None:
            try:
                state = await executor(Transaction(message, result.message_id, argument))
            except Exception as error:
                log.exception("the local executor raised on message %s; its transaction is unknown", result.message_id)
                failure = error
        return await bridge.call(engine.end, result, state or TransactionState.UNKNOWN, failure)
