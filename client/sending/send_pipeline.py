"""The pipeline of sends: chooses a queue for each try, and decides what an answer means.

There is no task for each send. `prepare` (in the caller's thread) makes the parts of the frame; `submit` (on the loop)
chooses the queue and gives the send to `lanes`, all plain functions; the answer calls `answered`. All that are
submitted in one turn of the loop leave in one write, and all answers of one read are settled in one turn. A send that
has to wait for a route is parked, in order, and one task for each topic resumes it.

Sends come and leave in groups, and each step is a loop over a group: a send costs 1.3 µs here, where a call of each
function for each send costs 2.3.

    submit ─ route? ─ queue ─ lanes ─▶ answered ─ stored ─▶ result
               │                          ├─ may be tried again ─▶ next try, another broker
             parked                       └─ final, or out of tries or time ─▶ error

Sends that left as a batch are answered one by one: each has its own tries and its own end. A batch that is refused for
what may lie in one of its messages is sent again message by message, so that only that one is refused.

The next try is made at once while there is a broker at which the send has not failed. When it has failed at all of them
it rests, for 50 ms, then 100 ms and so on. A try that never left, because no connection could be made, is not one of
the `retries`: the broker may be restarting, and the time given is used to wait for it. A send to a chosen queue has no
other tries than these, and stays with its queue.

Time-outs share one timer: a task sleeps until the earliest known deadline, and then scans the sends in flight (64 to
4096 of them). Under a steady load with one time-out that is one scan every 3 s.

Java: client/impl/producer/DefaultMQProducerImpl.java#sendDefaultImpl, client/impl/MQClientAPIImpl.java
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import BadAnswer, ClientClosed, ClientError, NoRoute, SendFailed, TimedOut
from rocketlet.client.sending.lanes import Lanes, results_of
from rocketlet.client.sending.latency_faults import LatencyFaults
from rocketlet.client.sending.queue_selection import choose
from rocketlet.client.sending.send import Answer, Call, Send
from rocketlet.client.sending.send_result import STATUS_BY_CODE, SendResult, SendStatus
from rocketlet.client.talking.broker_calls import refusal, translated
from rocketlet.client.talking.route_cache import Route
from rocketlet.client.talking.session import Session
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import CallTimeout, RemotingError
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.send_pipeline")

_SEND = "the send"
_MIN_REST = 0.05
_LONGEST_REST = 0.2  # between two looks for a master
# After these answers the route is refreshed at once: it seems to have changed.
_STALE_ROUTE = frozenset({int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.NO_PERMISSION)})
# A batch may get these for one of its messages, or for being one. The broker has stored none of it.
_OF_ONE_MESSAGE = frozenset(
    {int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), int(ResponseCode.MESSAGE_ILLEGAL)}
)


class SendPipeline:
    """The sends of one client. Lives on its loop."""

    def __init__(self, session: Session, config: ProducerConfig) -> None:
        self._session = session
        self._config = config
        self._try_timeout = math.inf if config.try_timeout is None else config.try_timeout
        self._faults = LatencyFaults(config.latencies_ms, config.avoidances_ms) if config.latency_faults else None
        self.in_flight_sends: set[Send] = set()
        """Sends not settled yet. Threads look at its size only."""
        self.bytes = 0
        """Of the bodies that were let in; at most `max_bytes_in_flight`, or one body."""
        self.waiting_sends: deque[Send] = deque()
        """Those of them that wait for others to make room. Threads look at its size only."""
        self._is_admitting = False
        self.settled: Callable[[], None] | None = None
        """Called after each send: for threads that wait for room."""
        self._lanes = Lanes(session, config, self.answered, self._sent_oneway, self.start_task)
        self._for_route: dict[str, deque[Send]] = {}
        self._refreshing: set[str] = set()
        self._resting: list[tuple[float, int, Send]] = []
        """A heap of sends between two tries: when each is tried again, and its place among those of one time."""
        self._order = itertools.count()
        self._next_look = math.inf
        self._sleeping = trio.CancelScope()
        self._empty = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._closed: ClientError | None = None

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled; what is in flight then fails."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._expire_overdue)
                task_status.started()
        finally:
            self._closed = ClientClosed("the producer has ended before the send was answered")
            self.waiting_sends.clear()  # otherwise there would never be room for threads that wait for it
            for send in list(self.in_flight_sends):
                send.call = None
                self._settle(send, None, self._closed)

    def start_task(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run something beside the sends, as long as they run."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)

    async def drain(self) -> None:
        """Wait until nothing is in flight."""
        while self.in_flight_sends:
            await self._empty.park()

    async def sent(self, send: Send) -> SendResult:
        """Submit and wait, in a task on this loop."""
        self.submit(send)
        if not send.done:
            finished = trio.Event()
            send.when_done(finished.set)
            await finished.wait()
        return send.outcome()

    def continue_send(self, send: Send, answer: Answer) -> None:
        """Take over a send whose first try was made elsewhere and ended with this answer."""
        if self._closed is not None:
            send.settle(None, self._closed)
            return
        self.in_flight_sends.add(send)
        self._look_by(self._try_ends(send))
        self.answered([send], answer)

    # ---- one try

    def submit_all(self, sends: deque[Send]) -> None:
        """Start these, and empty it. Those that go to one queue leave together."""
        group = list(sends)
        self.in_flight_sends.update(group)  # first: a thread that finds neither these nor those may send past them
        for _ in group:
            sends.popleft()
        self._submit(group)

    def submit(self, send: Send) -> None:
        """Start a send. The result or error goes to `send`."""
        self.in_flight_sends.add(send)
        self._submit((send,))

    def _submit(self, sends: Sequence[Send]) -> None:
        if self._closed is not None:
            for send in sends:
                self._end(send, None, self._closed)
            return
        now = trio.current_time()
        first_end = now + self._try_timeout
        for send in sends:
            send.began = send.tried_at = now
            send.deadline = deadline = now + send.timeout
            if deadline < first_end:
                first_end = deadline
        self._look_by(first_end)
        self.waiting_sends.extend(sends)
        self._admit()

    def _admit(self) -> None:
        """Start those whose bodies fit into the limit of bytes in flight: that bounds what waits in socket buffers."""
        if self._is_admitting or self._closed is not None:
            return  # in the first case one of them ended at once; the others follow in their order
        self._is_admitting = True
        try:
            while group := self._take_admissible():
                self._try(group)
        finally:
            self._is_admitting = False

    def _take_admissible(self) -> list[Send]:
        waiting, limit, size = self.waiting_sends, self._config.max_bytes_in_flight, self.bytes
        group = []
        while waiting:
            send = waiting[0]
            if not send.done:  # it may have waited here for too long
                body_size = len(send.body)
                if size and size + body_size > limit:
                    break
                size += body_size
                send.counted = True
                group.append(send)
            waiting.popleft()
        self.bytes = size
        return group

    def _try(self, sends: Sequence[Send]) -> None:
        """Choose the queue of each, and give them to their lanes: those of one queue together, in their order."""
        groups: dict[MessageQueue, list[Send]] = {}
        topic, route = "", None
        for send in sends:
            if send.topic != topic:
                topic = send.topic
                route = self._route_for(send)
            if route is None:
                self._for_route[topic].append(send)
                continue
            try:
                queues, turn = route.writable, next(route.turns)
                if send.fixed is None and send.select is None and send.causes is None and self._faults is None:
                    queue = queues[turn % len(queues)]  # as `choose` does; two calls would be an eighth of this loop
                else:
                    queue = self._choose(send, queues, turn)
                send.queue = queue
            except ClientError as error:
                self._settle(send, None, error)
                continue
            except Exception as error:  # noqa: BLE001 - see `Lanes`
                self._not_made(send, error)
                continue
            send.tries += 1
            group = groups.get(queue)
            if group is None:
                groups[queue] = [send]
            else:
                group.append(send)
        for queue, group in groups.items():
            self._hand_to_lane(queue, group)

    def _route_for(self, send: Send) -> Route | None:
        """The route that a send takes; None where it has to wait for one, in `_for_route`."""
        topic = send.topic
        if topic in self._for_route:
            return None
        route = self._session.routes.get(topic)
        if route is not None and route.writable:
            return route
        self._for_route[topic] = deque()
        self.start_task(self._get_route, topic)
        return None

    def _choose(self, send: Send, queues: tuple[MessageQueue, ...], turn: int) -> MessageQueue:
        if send.fixed is not None:
            return send.fixed
        if send.select is not None:
            return send.select(queues)
        avoid = send.queue.broker_name if send.causes else None
        now = trio.current_time() * 1000 if self._faults is not None else 0.0
        return choose(queues, turn, avoid, self._faults, now)

    def _hand_to_lane(self, queue: MessageQueue, sends: Sequence[Send]) -> None:
        broker = queue.broker_name
        address = self._session.routes.master(broker)
        if address is not None:
            self._lanes.leave(sends, self._session.brokers.vip(address))
            return
        for send in sends:
            send.unsent += 1
            self._failed(send, NoRoute("the queue's broker is in no route", topic=send.topic, broker=broker))

    def _not_made(self, send: Send, error: Exception) -> None:
        failure = ClientError(f"the send could not be made: {error!r}", topic=send.topic)
        failure.__cause__ = error
        self._settle(send, None, failure)

    def _sent_oneway(self, send: Send) -> None:
        """One that is not answered was handed to its connection."""
        self._settle(send, SendResult(SendStatus.SEND_OK, send.message_id, "", send.queue, -1), None)

    # ---- its end

    def answered(self, sends: Sequence[Send], answer: Answer, call: Call | None = None) -> None:
        """A try of these has ended: with an answer, or without one. `call` is the request, if it left with one."""
        if isinstance(answer, Command):
            status = STATUS_BY_CODE.get(answer.code)
            if status is not None:
                self._stored(sends, status, answer, call)
                return
            if len(sends) > 1 and answer.code in _OF_ONE_MESSAGE:
                log.info("a batch of %d messages is sent again one by one: %s", len(sends), answer.remark)
                again = [send for send in sends if send.ends_with(call)]
                for send in again:
                    send.alone = True
                if again:
                    self._hand_to_lane(again[0].queue, again)
                return
        for send in sends:
            if not send.ends_with(call):
                continue
            if isinstance(answer, Command):
                self._refused(send, answer)
            elif isinstance(answer, RemotingError):
                self._failed(send, translated(answer, _SEND, self._broker(send), send.topic))
            else:
                self._not_made(send, answer)

    def _stored(self, sends: Sequence[Send], status: SendStatus, answer: Command, call: Call | None) -> None:
        try:
            results = results_of(sends, status, answer, self._config.namespace)
        except BadAnswer as error:
            for send in sends:
                if send.ends_with(call):
                    self._give_up(send, error)
            return
        self._note_answer(sends[0])
        is_safe = status is SendStatus.SEND_OK or not self._config.retry_when_not_stored_safely
        for send, result in zip(sends, results, strict=True):
            if send.call is not call:
                continue
            send.call = None
            if is_safe or not self._may_retry(send):
                self._end(send, result, None)
            else:
                self._failed(send, refusal(answer, _SEND, self._broker(send), send.topic))
        self._room_made()

    def _note_answer(self, send: Send) -> None:
        if self._faults is not None:
            now = trio.current_time()
            self._faults.answered(send.queue.broker_name, (now - send.tried_at) * 1000, now * 1000)

    def _refused(self, send: Send, answer: Command) -> None:
        self._note_answer(send)
        error = refusal(answer, _SEND, self._broker(send), send.topic)
        if answer.code in _STALE_ROUTE:
            self._refresh_soon(send.topic)
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            send.unsent += 1  # not stored: it is tried until its time is over, while masters change
        if answer.code in self._config.retry_codes:
            self._failed(send, error)
        else:
            self._give_up(send, error)

    def _failed(self, send: Send, error: ClientError) -> None:
        """A try failed in a way that allows another one."""
        now = trio.current_time()
        if self._faults is not None:
            self._faults.failed(send.queue.broker_name, (now - send.tried_at) * 1000, now * 1000)
        self._refresh_soon(send.topic)
        if not self._may_retry(send) or now >= send.deadline:
            self._give_up(send, error)
            return
        if send.causes is None:
            send.causes = []
        send.causes.append(error)
        if send.failed_at is None:
            send.failed_at = set()
        send.failed_at.add(send.queue.broker_name)
        if send.select is not None:
            send.fixed = send.queue  # asked again, a selector may see fewer queues and choose another one
        route = self._session.routes.get(send.topic) if send.fixed is None else None
        if route is not None and any(queue.broker_name not in send.failed_at for queue in route.writable):
            log.info("try %d of message %s failed, trying another broker: %s", send.tries, send.message_id, error)
            self._try_again(send)
            return
        remaining = send.deadline - now
        if remaining < _MIN_REST:
            send.causes.pop()  # `_give_up` adds it
            self._give_up(send, error)
            return
        send.failed_at.clear()
        pause = min(_MIN_REST * 2 ** min(send.rests, 20), remaining / 2)
        log.info("try %d of message %s failed, trying again in %g s: %s", send.tries, send.message_id, pause, error)
        send.rests += 1
        send.tried_at = now + pause
        heapq.heappush(self._resting, (now + pause, next(self._order), send))
        self._wake_timer(now + pause)

    def _try_again(self, send: Send) -> None:
        send.tried_at = trio.current_time()
        self._look_by(self._try_ends(send))
        self._try((send,))

    def _may_retry(self, send: Send) -> bool:
        if send.oneway:
            return False
        # A chosen queue is not replaced by another one: it was chosen for order. So is the moment: what has left may
        # be stored, and is not sent again after what followed it.
        is_fixed = send.fixed is not None or send.select is not None
        return send.tries - send.unsent <= (0 if is_fixed else self._config.retries)

    def _give_up(self, send: Send, error: ClientError) -> None:
        elapsed = (trio.current_time() - send.began) * 1000
        if send.causes:
            causes = (*send.causes, error)
            failure: ClientError = SendFailed(
                f"the send failed {len(causes)} times, lastly: {error.what}",
                causes=causes,
                topic=send.topic,
                broker=self._broker(send),
                elapsed_ms=elapsed,
                tries=send.tries,
                advice=error.advice,
            )
            failure.__cause__ = error
        else:
            failure = error.after(elapsed, send.tries)
        self._settle(send, None, failure)

    def _settle(self, send: Send, result: SendResult | None, error: ClientError | None) -> None:
        self._end(send, result, error)
        self._room_made()

    def _end(self, send: Send, result: SendResult | None, error: ClientError | None) -> None:
        self.in_flight_sends.discard(send)
        if send.counted:
            send.counted = False
            self.bytes -= len(send.body)
        send.settle(result, error)

    def _room_made(self) -> None:
        """Some sends have ended: others may follow, and who waits is told."""
        if self.waiting_sends:
            self._admit()
        if self.settled is not None:
            self.settled()
        if not self.in_flight_sends:
            self._empty.unpark_all()

    def _broker(self, send: Send) -> str:
        name = send.queue.broker_name
        address = self._session.routes.master(name)
        return f"{name} at {address}" if address else name

    # ---- waiting for a route

    async def _get_route(self, topic: str) -> None:
        pause = _MIN_REST
        while True:
            error: ClientError | None = None
            try:
                await self._session.publish_route(topic, self._config.default_topic, self._config.default_topic_queues)
            except ClientError as failure:
                error = failure
            latest = max((send.deadline for send in self._for_route[topic] if not send.done), default=0.0)
            if error is None or not self._has_slaves_only(topic) or trio.current_time() + pause >= latest:
                break
            await trio.sleep(pause)  # another one of its replicas is about to become the master
            pause = min(2 * pause, _LONGEST_REST)
        sends = [send for send in self._for_route.pop(topic) if not send.done]
        if error is None:
            self._try(sends)
            return
        for send in sends:
            self._give_up(send, error)

    def _has_slaves_only(self, topic: str) -> bool:
        routes = self._session.routes
        route = routes.get(topic)
        if route is None or route.writable or not route.readable:
            return False
        return all(routes.master(queue.broker_name) is None for queue in route.readable)

    def _refresh_soon(self, topic: str) -> None:
        # A nursery without tasks has ended: connections break after it when a client is cancelled.
        if topic not in self._refreshing and self._nursery is not None and self._nursery.child_tasks:
            self._refreshing.add(topic)
            self._nursery.start_soon(self._refresh, topic)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._session.refresh(topic)
        except ClientError as error:
            log.info("the route of %s was not refreshed: %s", topic, error)
        finally:
            self._refreshing.discard(topic)

    # ---- time

    def _try_ends(self, send: Send) -> float:
        """When the current try, or all, is out of time."""
        return min(send.deadline, send.tried_at + self._try_timeout)

    def _look_by(self, moment: float) -> None:
        if moment < self._next_look:
            self._next_look = moment
            self._wake_timer(moment)

    def _wake_timer(self, moment: float) -> None:
        self._sleeping.deadline = min(self._sleeping.deadline, moment)

    async def _expire_overdue(self) -> None:
        resting = self._resting
        while True:
            due = min(self._next_look, resting[0][0]) if resting else self._next_look
            with trio.CancelScope(deadline=due) as self._sleeping:
                await trio.sleep_forever()
            now = trio.current_time()
            while resting and resting[0][0] <= now:
                _, _, send = heapq.heappop(resting)
                if not send.done:
                    self._try_again(send)
            if now < self._next_look:
                continue
            self._next_look = math.inf
            for send in list(self.in_flight_sends):
                if self._try_ends(send) <= now:
                    self._time_out(send, now)
                if not send.done:
                    self._next_look = min(self._next_look, self._try_ends(send))

    def _time_out(self, send: Send, now: float) -> None:
        waits_for_others = send.waits_in is not None
        had_left = self._lanes.give_up(send)
        waited = now - (send.tried_at if had_left else send.began)
        if send.deadline <= now:
            reason = "the send found no route or connection"
            if had_left:
                reason = "the send was not answered"
            elif waits_for_others:
                reason = "the send waited for the answer to those before it, which did not come"
            error = TimedOut(f"{reason} in time", topic=send.topic, advice="it may be stored all the same")
            self._refresh_soon(send.topic)  # another master may have taken over from one that is silent
            self._give_up(send, error)
        else:
            self.answered([send], CallTimeout(f"no answer within {waited:g} s"))
