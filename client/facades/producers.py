"""The producers, for threads and for event loops.

Java: client/producer/DefaultMQProducer.java, TransactionMQProducer.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import ClientError
from rocketlet.client.facades.bridges import Bridge, SendPort
from rocketlet.client.facades.facade import Facade, InThreads, OnEventLoop, engine_method, shared
from rocketlet.client.facades.pending_send import PendingSend
from rocketlet.client.facades.thread_bridge import ThreadBridge
from rocketlet.client.hooks import SendHook
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.producer import ProducerEngine
from rocketlet.client.sending.queue_selection import Selector
from rocketlet.client.sending.request_reply import DEFAULT_REQUEST_TIMEOUT, reply_to
from rocketlet.client.sending.send_result import SendResult, SendStatus, TransactionState
from rocketlet.client.sending.transaction_producer import (
    AsyncChecker,
    AsyncExecutor,
    Checker,
    Executor,
    Transaction,
    TransactionEngine,
    checked_state,
)
from rocketlet.client.talking.session import World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.validators import check_callable, check_received, checked_hooks
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage

log = logging.getLogger("rocketlet.client.producer")

CheckerT = TypeVar("CheckerT", bound=Callable[[ReceivedMessage], Any])
ExecutorT = TypeVar("ExecutorT", bound=Callable[[Transaction], Any])


class Sending(Facade[ProducerEngine, ProducerConfig]):
    """The methods of every producer."""

    _role = "producer"
    _config_type = ProducerConfig

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
        super().__init__(group, config, namesrv=namesrv, world=world, **settings)
        self._hooks = checked_hooks(hooks, "before_send", "after_send")

    def _make_engine(self, bridge: Bridge, world: World) -> ProducerEngine:
        return ProducerEngine(self.group, self.config, world, self._hooks)

    async def _opened(self, bridge: Bridge, engine: ProducerEngine) -> None:
        self._port = bridge.send_port(engine)

    def _sending(self) -> tuple[ProducerEngine, SendPort]:
        return self._running()[1], self._port

    # ---- sending

    @shared
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

            result = producer.send(Message("orders", b"...", tags="new", keys=["order-7"]))

        `queue` fixes where it goes; `selector(queues, message, argument)` chooses, and so does the message's
        `sharding_key`; then only that queue is tried. Raises InvalidMessage before anything is sent; SendFailed,
        Refused, TimedOut, Unreachable or NoRoute after the last try. A task that is cancelled stops waiting; the
        message may be stored.
        """
        engine, port = self._sending()
        return await port.sent(engine.prepare(message, queue, selector, argument, timeout))

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
        """Start sending a message without waiting; many may be in flight at once.

            pending = [producer.send_soon(Message("T", b"%d" % n)) for n in range(100)]
            results = [each.result() for each in pending]          # in a task: await each

        Messages to one queue are stored in the order of these calls unless one of them has to be tried again. While
        `max_in_flight` are in flight a thread waits here, and a task gets TooManyInFlight. `callback(pending)` is
        called when it is done, in a thread of its own or by the event loop.
        """
        bridge, engine = self._running()
        port = self._port
        port.make_room()
        send = engine.prepare(message, queue, selector, argument, timeout)
        pending = PendingSend(send, bridge)
        if callback is not None:
            check_callable("callback", callback)
            pending.add_done_callback(callback)
        port.submit(send)
        return pending

    @shared
    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> None:
        """Send a message without an answer: it may be lost unnoticed.

            producer.send_oneway(Message("metrics", b"load 0.7"))

        Returns once it is handed to the connection. Raises NoRoute and Unreachable.
        """
        engine, port = self._sending()
        await port.sent(engine.prepare(message, queue, selector, argument, oneway=True))

    @shared
    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send many small messages of one topic in one request; all are stored in one queue, or none.

            producer.send_batch([Message("T", b"a"), Message("T", b"b")])

        `split(messages)` cuts what is too large for one request.
        """
        engine, port = self._sending()
        return await port.sent(engine.prepare_batch(messages, queue=queue, timeout=timeout))

    @shared
    async def request(
        self,
        message: Message,
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply. Raises RequestTimedOut.

        reply = producer.request(Message("prices", b"ACME"), timeout=5)
        """
        bridge, engine = self._running()
        return await bridge.call(engine.prepare_request(message, timeout, queue, selector, argument))

    @shared
    async def reply(self, request: ReceivedMessage, body: bytes) -> None:
        """Answer a message that was sent by `request`, from its listener for example.

        def listener(message):
            producer.reply(message, b"42")
        """
        check_received(request)
        bridge, engine = self._running()
        message, extra = reply_to(request, body)
        await bridge.call(InnerProducer(engine.session, engine.group).reply, message, extra, self.config.send_timeout)

    @shared
    async def recall(self, sent: SendResult) -> str:
        """Take a message back that was sent with `deliver_at`, before its moment; returns its id.

        Raises Refused where the moment has come, or it was recalled already.
        """
        bridge, engine = self._running()
        return await bridge.call(engine.queries.recall, engine.group, sent)

    # ---- asking

    publish_queues = engine_method(ProducerEngine.publish_queues)
    max_offset = engine_method(TopicQueries.max_offset, "queries")
    min_offset = engine_method(TopicQueries.min_offset, "queries")
    offset_at = engine_method(TopicQueries.offset_at, "queries")
    earliest_store_time = engine_method(TopicQueries.earliest_store_time, "queries")
    view = engine_method(TopicQueries.view, "queries")
    query = engine_method(TopicQueries.query, "queries")
    create_topic = engine_method(TopicQueries.create_topic, "queries")


class Producer(Sending, InThreads):
    """Sends messages, from any number of threads.

    with Producer("group", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("T", b"hi"))
    """

    def request_soon(
        self,
        message: Message,
        callback: Callable[[ReceivedMessage | None, ClientError | None], object],
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
    ) -> None:
        """Send a request; `callback(reply, error)` is called with one of the two, in a thread of its own.

        producer.request_soon(Message("prices", b"ACME"), lambda reply, error: print(reply or error))
        """
        check_callable("callback", callback)
        bridge, engine = self._running()
        assert isinstance(bridge, ThreadBridge)
        thread = bridge.thread

        def done(reply: Any, error: BaseException | None) -> None:
            failure = error if error is None or isinstance(error, ClientError) else ClientError(repr(error))
            thread.call_back(lambda: callback(reply, failure))

        thread.spawn(done, engine.prepare_request(message, timeout))


class AsyncProducer(Sending, OnEventLoop):
    """Sends messages, from any number of trio or asyncio tasks.

    async with AsyncProducer("group", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("T", b"hi"))
    """


class SendingInTransactions(Sending, Generic[CheckerT, ExecutorT]):
    """The methods of every transaction producer."""

    def __init__(
        self,
        group: str,
        checker: CheckerT,
        config: ProducerConfig | None = None,
        *,
        namesrv: str | None = None,
        hooks: Sequence[SendHook] = (),
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of ProducerConfig by name. `world` is for tests."""
        check_callable("checker", checker, in_threads=isinstance(self, InThreads))
        super().__init__(group, config, namesrv=namesrv, hooks=hooks, world=world, **settings)
        self._checker = checker

    def _make_engine(self, bridge: Bridge, world: World) -> ProducerEngine:
        return TransactionEngine(self.group, self.config, world, bridge.user_call(self._checker), self._hooks)

    async def _opened(self, bridge: Bridge, engine: ProducerEngine) -> None:
        await super()._opened(bridge, engine)
        assert isinstance(engine, TransactionEngine)
        # Last, and not before: a checker may use this producer.
        bridge.post(engine.may_check.set)

    @shared
    async def send_in_transaction(
        self,
        message: Message,
        executor: ExecutorT,
        argument: Any = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Store a half message, run the local transaction here, and tell the broker its outcome.

        `result.state` is the outcome. An executor that raises or returns nothing leaves it UNKNOWN: the checker is
        asked later. Raises what `send` raises; then the executor was not run.
        """
        bridge, engine = self._running()
        assert isinstance(engine, TransactionEngine)
        check_callable("local executor", executor, in_threads=isinstance(self, InThreads))
        result = await self._port.sent(engine.prepare_half(message, queue, timeout))
        state: TransactionState | None = None
        failure = None
        if result.status is not SendStatus.SEND_OK:
            state = TransactionState.ROLLBACK  # what is not stored safely must not be committed
        else:
            try:
                state = checked_state(
                    await bridge.user_function(executor)(Transaction(message, result.message_id, argument))
                )
            except Exception as error:
                log.exception("the local executor raised on message %s; its transaction is unknown", result.message_id)
                failure = error
        return await bridge.call(engine.end, message, result, state or TransactionState.UNKNOWN, failure)


class TransactionProducer(SendingInTransactions[Checker, Executor], Producer):
    """Sends messages that are delivered only if a local transaction succeeds, from any number of threads.

        def execute(transaction):
            book(transaction.message)
            return TransactionState.COMMIT

        def check(message):
            return TransactionState.COMMIT if booked(message.message_id) else TransactionState.ROLLBACK

        with TransactionProducer("group", check, namesrv="127.0.0.1:9876") as producer:
            producer.send_in_transaction(Message("T", b"booking 7"), execute)

    The checker is asked about transactions of the whole group, even those of clients that have died; it runs in
    threads of the client.
    """


class AsyncTransactionProducer(SendingInTransactions[AsyncChecker, AsyncExecutor], AsyncProducer):
    """Sends messages that are delivered only if a local transaction succeeds, from trio or asyncio.

        async def execute(transaction):
            await book(transaction.message)
            return TransactionState.COMMIT

        async def check(message):
            return TransactionState.COMMIT if await booked(message.message_id) else TransactionState.ROLLBACK

        async with AsyncTransactionProducer("group", check, namesrv="127.0.0.1:9876") as producer:
            await producer.send_in_transaction(Message("T", b"booking 7"), execute)

    The checker is asked about transactions of the whole group, even those of clients that have died.
    """
