"""Sends on their way: chooses a queue for each try, hands frames to connections, decides what an answer means.

There is no task a send. `prepare` (in the caller's thread) makes the parts of the frame; `submit` (on the loop) chooses
queue and connection and hands the frame over, all plain functions; the answer calls `answered`. All that are submitted
in one turn of the loop leave in one write, and all answers of one read are settled in one turn. A send that has to wait
for a route or a connection is parked, in order, and one task a topic or address gets it going again.

    submit ─ route? ─ connection? ─ frame ─▶ answered ─ stored ─▶ result
               │           │                    ├─ may be tried again ─▶ next try, another broker
             parked      parked                 └─ final, or out of tries or time ─▶ error

Time-outs have no timer each: one task sleeps until the earliest deadline that it knows of, and then looks through what
is on its way (64 to 4096 sends). Under a steady load of one time-out that is one look every 3 s.

Java: client/impl/producer/DefaultMQProducerImpl.java#sendDefaultImpl, client/impl/MQClientAPIImpl.java
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import ClientClosed, ClientError, NoRoute, SendFailed, TimedOut
from rocketlet.client.namespace import unwrap
from rocketlet.client.sending.latency_faults import LatencyFaults
from rocketlet.client.sending.pending_send import PendingSend
from rocketlet.client.sending.queue_selection import choose
from rocketlet.client.sending.send_result import STATUS_BY_CODE, SendResult, SendStatus
from rocketlet.client.talking.broker_calls import refusal, translated
from rocketlet.client.talking.session import Session
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.errors import CallTimeout, RemotingError
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.response_codes import ResponseCode

if TYPE_CHECKING:
    from rocketlet.remoting.connection import Connection

log = logging.getLogger("rocketlet.client.send_pipeline")

_SEND = "the send"
# After these answers the route is asked for at once: it seems to have changed.
_STALE_ROUTE = frozenset({int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.NO_PERMISSION)})


class SendPipeline:
    """The sends of one client. Lives on its loop."""

    def __init__(self, session: Session, config: ProducerConfig) -> None:
        self._session = session
        self._config = config
        self._faults = LatencyFaults(config.latencies_ms, config.avoidances_ms) if config.latency_faults else None
        self.on_their_way: set[PendingSend] = set()
        """Not settled yet. Threads look at its size only."""
        self.bytes = 0
        """Of the bodies that were let in; at most `max_bytes_in_flight`, or one body."""
        self._outside: deque[PendingSend] = deque()
        self.settled: Callable[[], None] | None = None
        """Called after each send: for threads that wait for room."""
        self._lines: dict[str, Connection] = {}
        self._for_route: dict[str, deque[PendingSend]] = {}
        self._for_line: dict[str, deque[PendingSend]] = {}
        self._refreshing: set[str] = set()
        self._next_look = math.inf
        self._sleeping = trio.CancelScope()
        self._empty = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._closed: ClientError | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether some sends wait for others to make room."""
        return bool(self._outside)

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled; what is on its way then fails."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._look_for_late_ones)
                task_status.started()
        finally:
            self.close(ClientClosed("the producer has ended before the send was answered"))

    def close(self, error: ClientError) -> None:
        """Fail what is on its way, and what comes from now on."""
        self._closed = error
        for pending in list(self.on_their_way):
            self._settle(pending, None, error)

    def start_task(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run something beside the sends, as long as they run."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)

    async def drain(self) -> None:
        """Wait until nothing is on its way."""
        while self.on_their_way:
            await self._empty.park()

    async def sent(self, pending: PendingSend) -> SendResult:
        """Submit and wait, in a task of this loop, whatever world the send's own waiters live in."""
        self.submit(pending)
        if not pending.done:
            finished = trio.Event()
            pending._wakers.append(finished.set)
            await finished.wait()
        return pending.result()

    def carry_on(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        """Take over a send whose first try was made elsewhere and has come to this end."""
        if self._closed is not None:
            pending._settle(None, self._closed)
            return
        self.on_their_way.add(pending)
        self._look_before(pending._deadline)
        self.answered(pending, answer)

    # ---- one try

    def submit(self, pending: PendingSend) -> None:
        """Begin. The result or error goes to `pending`."""
        now = trio.current_time()
        pending._began = pending._tried_at = now
        pending._deadline = deadline = now + pending._timeout
        if self._closed is not None:
            pending._settle(None, self._closed)
            return
        self.on_their_way.add(pending)
        if self._config.try_timeout is not None:
            deadline = min(deadline, now + self._config.try_timeout)
        if deadline < self._next_look:
            self._next_look = self._sleeping.deadline = deadline
        if self._outside or not self._let_in(pending):
            self._outside.append(pending)

    def _let_in(self, pending: PendingSend) -> bool:
        """Begin with a send if its body finds room beside the others: what waits in a socket's buffer is bounded."""
        size = len(pending._body)
        if self.bytes and self.bytes + size > self._config.max_bytes_in_flight:
            return False
        self.bytes += size
        pending._inside = True
        self._try(pending)
        return True

    def _try(self, pending: PendingSend) -> None:
        topic = pending._topic
        parked = self._for_route.get(topic)
        if parked is not None:
            parked.append(pending)
            return
        route = self._session.routes.get(topic)
        if route is None or not route.writable:
            self._park_for_route(pending)
            return
        try:
            self._go(pending, route.writable, route.next_turn())
        except ClientError as error:
            self._settle(pending, None, error)

    def _go(self, pending: PendingSend, queues: tuple[MessageQueue, ...], turn: int) -> None:
        if pending._fixed is not None:
            queue = pending._fixed
        elif pending._select is not None:
            queue = pending._select(queues)
        else:
            avoid = pending._queue.broker_name if pending._causes else None
            queue = choose(queues, turn, avoid, self._faults, trio.current_time() * 1000)
        pending._queue = queue
        pending._tries += 1
        address = self._session.routes.master(queue.broker_name)
        if address is None:
            self._failed(
                pending, NoRoute("the queue's broker is in no route", topic=pending._topic, broker=queue.broker_name)
            )
            return
        address = self._session.brokers.vip(address)
        line = self._lines.get(address)
        if line is None or line.closed:
            self._park_for_line(pending, address)
        else:
            self._send(pending, line)

    def _send(self, pending: PendingSend, line: Connection) -> None:
        pending._tried_at = trio.current_time()
        pending._connection = line
        pending._opaque = opaque = line.take_opaque()
        try:
            if line.header_type is HeaderType.JSON and not line.has_hooks:
                frame = pending._template.frame(
                    opaque,
                    pending._queue.queue_id,
                    pending._sys_flag,
                    pending._born,
                    pending._flag,
                    pending._properties,
                    pending._body,
                    pending._oneway,
                )
            else:
                frame = self._other_frame(pending, line, opaque)
            if pending._oneway:
                line.send_oneway_frame(frame)
                self._settle(pending, _sent_without_answer(pending), None)
            else:
                line.call_frame_soon(opaque, frame, pending._answered)
        except RemotingError as error:
            self.answered(pending, error)

    def _other_frame(self, pending: PendingSend, line: Connection, opaque: int) -> bytes:
        command = pending._template.command(
            line.header_type,
            pending._queue.queue_id,
            pending._sys_flag,
            pending._born,
            pending._flag,
            pending._properties,
            pending._body,
            pending._oneway,
        )
        command.opaque = opaque
        line.sign(command)
        return encode(command)

    # ---- its end

    def answered(self, pending: PendingSend, answer: Command | RemotingError) -> None:
        """A try has come to an end: an answer, or no answer any more."""
        if pending.done:
            return
        if isinstance(answer, RemotingError):
            self._failed(pending, translated(answer, _SEND, self._broker(pending), pending._topic))
            return
        if self._faults is not None:
            now = trio.current_time()
            self._faults.answered(pending._queue.broker_name, (now - pending._tried_at) * 1000, now * 1000)
        status = STATUS_BY_CODE.get(answer.code)
        if status is None:
            self._refused(pending, answer)
        elif (
            status is not SendStatus.SEND_OK and self._config.retry_when_not_stored_safely and self._may_retry(pending)
        ):
            self._failed(pending, refusal(answer, _SEND, self._broker(pending), pending._topic))
        else:
            self._settle(pending, result_of(pending, status, answer, self._config.namespace), None)

    def _refused(self, pending: PendingSend, answer: Command) -> None:
        error = refusal(answer, _SEND, self._broker(pending), pending._topic)
        if answer.code in _STALE_ROUTE:
            self._refresh_soon(pending._topic)
        if answer.code in self._config.retry_codes:
            self._failed(pending, error)
        else:
            self._give_up(pending, error)

    def _failed(self, pending: PendingSend, error: ClientError) -> None:
        """A try that another one may follow."""
        now = trio.current_time()
        if self._faults is not None:
            self._faults.failed(pending._queue.broker_name, (now - pending._tried_at) * 1000, now * 1000)
        self._refresh_soon(pending._topic)
        if not self._may_retry(pending) or now >= pending._deadline:
            self._give_up(pending, error)
            return
        if pending._causes is None:
            pending._causes = []
        pending._causes.append(error)
        log.info("try %d of message %s failed, trying another broker: %s", pending._tries, pending.message_id, error)
        if self._config.try_timeout is not None:
            self._look_before(now + self._config.try_timeout)
        self._try(pending)

    def _may_retry(self, pending: PendingSend) -> bool:
        # A chosen queue is not exchanged for another one: it was chosen for order.
        chosen = pending._fixed is not None or pending._select is not None
        return not chosen and not pending._oneway and pending._tries <= self._config.retries

    def _give_up(self, pending: PendingSend, error: ClientError) -> None:
        elapsed = (trio.current_time() - pending._began) * 1000
        if pending._causes:
            causes = [*pending._causes, error]
            failure: ClientError = SendFailed(
                f"the send failed {len(causes)} times, lastly: {error.what}",
                causes=causes,
                topic=pending._topic,
                broker=self._broker(pending),
                elapsed_ms=elapsed,
                tries=pending._tries,
                advice=error.advice,
            )
            failure.__cause__ = error
        else:
            failure = error.after(elapsed, pending._tries)
        self._settle(pending, None, failure)

    def _settle(self, pending: PendingSend, result: SendResult | None, error: ClientError | None) -> None:
        self.on_their_way.discard(pending)
        pending._connection = None
        if pending._inside:
            pending._inside = False
            self.bytes -= len(pending._body)
        pending._settle(result, error)
        while self._outside and (self._outside[0].done or self._let_in(self._outside[0])):
            self._outside.popleft()
        if self.settled is not None:
            self.settled()
        if not self.on_their_way:
            self._empty.unpark_all()

    def _broker(self, pending: PendingSend) -> str:
        name = pending._queue.broker_name
        address = self._session.routes.master(name)
        return f"{name} at {address}" if address else name

    # ---- waiting for a route

    def _park_for_route(self, pending: PendingSend) -> None:
        assert self._nursery is not None
        self._for_route[pending._topic] = deque([pending])
        self._nursery.start_soon(self._get_route, pending._topic)

    async def _get_route(self, topic: str) -> None:
        error: ClientError | None = None
        try:
            await self._session.publish_route(topic, self._config.default_topic, self._config.default_topic_queues)
        except ClientError as failure:
            error = failure
        for pending in self._for_route.pop(topic):
            if pending.done:
                continue
            if error is None:
                self._try(pending)
            else:
                self._give_up(pending, error)

    def _refresh_soon(self, topic: str) -> None:
        if topic not in self._refreshing and self._nursery is not None:
            self._refreshing.add(topic)
            self._nursery.start_soon(self._refresh, topic)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._session.refresh(topic)
        except ClientError as error:
            log.info("the route of %s was not refreshed: %s", topic, error)
        finally:
            self._refreshing.discard(topic)

    # ---- waiting for a connection

    def _park_for_line(self, pending: PendingSend, address: str) -> None:
        parked = self._for_line.get(address)
        if parked is not None:
            parked.append(pending)
            return
        assert self._nursery is not None
        self._for_line[address] = deque([pending])
        self._nursery.start_soon(self._get_line, address)

    async def _get_line(self, address: str) -> None:
        error: RemotingError | None = None
        line = None
        try:
            line = await self._session.connection(address)
        except RemotingError as failure:
            error = failure
        parked = self._for_line.pop(address)
        if line is not None:
            self._lines[address] = line
        for pending in parked:
            if pending.done:
                continue
            if line is not None:
                self._send(pending, line)
            else:
                assert error is not None
                self.answered(pending, error)

    # ---- time

    def _look_before(self, deadline: float) -> None:
        if deadline < self._next_look:
            self._next_look = self._sleeping.deadline = deadline

    async def _look_for_late_ones(self) -> None:
        try_timeout = self._config.try_timeout
        while True:
            with trio.CancelScope(deadline=self._next_look) as self._sleeping:
                await trio.sleep_forever()
            now = trio.current_time()
            self._next_look = math.inf
            for pending in list(self.on_their_way):
                deadline = pending._deadline
                if try_timeout is not None:
                    deadline = min(deadline, pending._tried_at + try_timeout)
                if deadline <= now:
                    self._late(pending, now)
                    deadline = pending._deadline if not pending.done else math.inf
                self._next_look = min(self._next_look, deadline)

    def _late(self, pending: PendingSend, now: float) -> None:
        line = pending._connection
        if line is not None:
            line.forget(pending._opaque)
            pending._connection = None
        waited = now - (pending._tried_at if line is not None else pending._began)
        if pending._deadline <= now:
            what = "the send was not answered" if line is not None else "the send found no route or connection"
            error = TimedOut(f"{what} in time", topic=pending._topic, advice="it may be stored all the same")
            self._give_up(pending, error)
        else:
            self.answered(pending, CallTimeout(f"no answer within {waited:g} s"))


def result_of(pending: PendingSend, status: SendStatus, answer: Command, namespace: str) -> SendResult:
    """What an answer of this status says."""
    ext = answer.ext or {}
    queue = pending._queue
    queue_id = int(ext.get("queueId", queue.queue_id))
    if queue_id != queue.queue_id or namespace:
        queue = MessageQueue(unwrap(namespace, queue.topic), queue.broker_name, queue_id)
    return SendResult(
        status,
        pending.message_id,
        ext.get("msgId", ""),
        queue,
        int(ext.get("queueOffset", 0)),
        ext.get("transactionId"),
        ext.get("MSG_REGION"),
        ext.get("TRACE_ON") != "false",
    )


def _sent_without_answer(pending: PendingSend) -> SendResult:
    return SendResult(SendStatus.SEND_OK, pending.message_id, "", pending._queue, -1)
