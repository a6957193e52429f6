"""Pulls one queue for as long as it is held: one request at a time, which the broker may hold until messages arrive.

Whatever a pull meets, the loop continues: an answer moves it forward, an error is logged and waited out, an offset that
the broker does not have makes it continue at one that exists. Only the release of the queue ends it;
a bug of ours ends the whole client, loudly, because a loop that died alone would go unnoticed.

Pulling pauses while the consumer is suspended, while too much of this queue, of its topic or of the whole consumer is
pulled and not consumed (by count, by bytes), or while its oldest open message is too far behind the newest.

Java: client/impl/consumer/DefaultMQPushConsumerImpl.java#pullMessage, PullMessageService.java, PullAPIWrapper.java
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

import trio
from trio.lowlevel import Abort

from rocketlet.client.compression import CannotInflate
from rocketlet.client.config import PullConfig, PushConfig
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.client.errors import BadAnswer, ClientError, NoRoute, Refused
from rocketlet.client.talking.broker_calls import read_pull, translated
from rocketlet.client.talking.route_cache import MASTER
from rocketlet.client.talking.session import Session
from rocketlet.client.wakeup import Wakeup
from rocketlet.common.message_record import Buffer, RecordError
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import CallTimeout, RemotingError
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.client.pull_loop")

_PULL = request_name(RequestCode.PULL_MESSAGE)
_AFTER_ERROR = 1.0
_AFTER_FLOW_CONTROL = 0.02  # the broker's own, code 215
_LOOK_AGAIN = 1.0
_BEFORE_MOVE = 0.1
_UNKNOWN_HERE = frozenset(
    {
        int(ResponseCode.SUBSCRIPTION_NOT_EXIST),
        int(ResponseCode.SUBSCRIPTION_NOT_LATEST),
        int(ResponseCode.FILTER_DATA_NOT_EXIST),
        int(ResponseCode.FILTER_DATA_NOT_LATEST),
    }
)
# A broker that answers "nothing" at once, though it was asked to wait, would be asked ten thousand times a second.
_QUICK_ANSWER = 0.005
_QUICK_ANSWERS_ALLOWED = 3


class Puller(Protocol):
    """The consumer on whose behalf a queue is pulled."""

    group: str
    session: Session
    config: PushConfig | PullConfig
    pull_flags: int
    """With COMMIT_OFFSET, pulls commit where that is possible; with SUBSCRIPTION, they carry the subscription."""
    pull_interval: float = 0.0

    def filter_of(self, topic: str) -> Subscription | None:
        """What pulls of a topic select by; None once it is unsubscribed."""

    def pulled(
        self, process_queue: ProcessQueue, records: Buffer, subscription: Subscription, next_offset: int
    ) -> None:
        """Put the messages of an answer into the process queue, and hand them on. Raises RecordError, ClientError."""

    def full(self, process_queue: ProcessQueue) -> str:
        """Why this queue must not be pulled now; empty if it may be."""

    def has_no_room(self) -> bool:
        """Whether even what was asked for while there was room must not be taken any more."""

    def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker does not have the requested offset and suggests this one."""


class PullLoop:
    """One queue's loop."""

    def __init__(self, process_queue: ProcessQueue, puller: Puller) -> None:
        self._queue = process_queue
        self._puller = puller
        self._session = puller.session
        self._broker_id = MASTER
        self._quick = 0
        self._pause_logged = False
        self.room = Wakeup()
        """Announced when messages have been consumed, or the consumer goes on."""
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        """Pull until the queue is dropped or `scope` is cancelled."""
        with self.scope:
            while not self._queue.dropped:
                self._queue.last_pull = trio.current_time() * 1000
                reason = self._puller.full(self._queue)
                if reason:
                    await self._pause(reason)
                    continue
                self._pause_logged = False
                try:
                    await self._pull()
                except (ClientError, RecordError) as error:
                    await self._wait_after_error(error)
                if self._puller.pull_interval:
                    await trio.sleep(self._puller.pull_interval)

    async def _pause(self, reason: str) -> None:
        if not self._pause_logged:
            self._pause_logged = True
            log.debug("%s is not pulled: %s", self._queue.queue, reason)
        await self.room.wait(_LOOK_AGAIN)

    async def _wait_after_error(self, error: ClientError | RecordError) -> None:
        if isinstance(error, Refused) and error.code == ResponseCode.FLOW_CONTROL:
            await trio.sleep(_AFTER_FLOW_CONTROL)
            return
        if isinstance(error, (RecordError, CannotInflate)):
            log.error(
                "what was pulled from %s at %d is unreadable: %s", self._queue.queue, self._queue.pulled_to, error
            )
        else:
            log.warning("pull of %s at %d failed: %s", self._queue.queue, self._queue.pulled_to, error)
        self._broker_id = MASTER
        if isinstance(error, Refused) and error.code in _UNKNOWN_HERE:
            self._session.heartbeats.soon()
        await trio.sleep(_AFTER_ERROR)

    async def _pull(self) -> None:
        """Pull for as long as all goes well."""
        queue = self._queue.queue
        subscription = self._puller.filter_of(queue.topic)
        if subscription is None:
            await trio.sleep(_LOOK_AGAIN)  # unsubscribed; the next rebalance takes the queue away
            return
        place = self._session.routes.address(queue.broker_name, self._broker_id)
        if place is None:
            raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
        try:
            connection = await self._session.pool.connection(place[0])
        except RemotingError as error:
            raise translated(error, _PULL, place[0], queue.topic) from error
        chain = _Chain(self._queue, self._puller, subscription, place, connection)
        code, answer = await chain.run()
        if self._queue.dropped:
            return
        self._broker_id = answer.suggestWhichBrokerId
        if code == ResponseCode.PULL_OFFSET_MOVED and answer.nextBeginOffset == self._queue.pulled_to:
            raise BadAnswer(f"the broker moves offset {self._queue.pulled_to} to itself", topic=queue.topic)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            await trio.sleep(_BEFORE_MOVE)  # a broker that moves it back and forth is not asked endlessly
            log.warning(
                "%s has no offset %d (it has %d to %d); continuing at %d",
                queue,
                self._queue.pulled_to,
                answer.minOffset,
                answer.maxOffset,
                answer.nextBeginOffset,
            )
            self._puller.offset_moved(self._queue, answer.nextBeginOffset)
            return
        is_quick = not chain.on_progress and trio.current_time() - chain.asked_at < _QUICK_ANSWER
        self._quick = self._quick + 1 if is_quick else 0
        if self._quick >= _QUICK_ANSWERS_ALLOWED:
            await trio.sleep(_AFTER_ERROR)


@dataclass(slots=True, eq=False)
class _Chain:
    """Pulls of one queue on one connection. While all goes well each answer asks for the next, in the turn of the
    connection that read it: no task runs in between, so that messages get to their listener sooner.
    """

    _queue: ProcessQueue
    _puller: Puller
    _subscription: Subscription
    _place: tuple[str, int]
    _connection: Connection
    asked_at: float = 0.0
    on_progress: bool = False
    """Whether the last answer says to go on at another offset."""
    _opaque: int = 0
    _timeout_scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _task: trio.lowlevel.Task | None = None
    _last: tuple[int, pulling.PullMessageAnswerHeader] | ClientError | RecordError | None = None

    async def run(self) -> tuple[int, pulling.PullMessageAnswerHeader]:
        """Pull until an answer has to be looked at; its code and header. Raises ClientError, RecordError."""
        with self._timeout_scope:
            self._ask()
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self._last is None:
            self._puller.session.pool.unanswered(self._connection, self.asked_at)
            raise self._translated(CallTimeout(f"no answer within {self._puller.config.pull_timeout:g} s"))
        if isinstance(self._last, (ClientError, RecordError)):
            raise self._last
        return self._last

    def _abort(self, _: object) -> Abort:
        self._connection.forget(self._opaque)
        self._last = None
        return Abort.SUCCEEDED

    def _ask(self) -> None:
        self.asked_at = now = trio.current_time()
        self._queue.last_pull = 1000 * now
        self._timeout_scope.deadline = now + self._puller.config.pull_timeout
        try:
            self._opaque = self._connection.call_soon(
                request(RequestCode.PULL_MESSAGE, self._header()), self._on_answer
            )
        except RemotingError as error:
            raise self._translated(error) from error

    def _on_answer(self, answer: Command | RemotingError) -> None:
        try:
            if self._take(answer):
                self._ask()
                return
        except (ClientError, RecordError) as error:
            self._last = error
        assert self._task is not None
        trio.lowlevel.reschedule(self._task)

    def _take(self, answer: Command | RemotingError) -> bool:
        """Take in an answer; whether the next pull may follow at once."""
        queue, wire = self._queue, self._queue.queue
        if isinstance(answer, RemotingError):
            raise self._translated(answer) from answer
        code, header, body = read_pull(answer, self._place[0], wire.topic)
        self._last = code, header
        if queue.dropped or code == ResponseCode.PULL_OFFSET_MOVED or self._puller.has_no_room():
            return False
        self.on_progress = header.nextBeginOffset != queue.pulled_to
        records = body if code == ResponseCode.SUCCESS else b""
        self._puller.pulled(queue, records, self._subscription, header.nextBeginOffset)
        return (
            self.on_progress
            and not self._puller.pull_interval
            and self._puller.filter_of(wire.topic) is self._subscription
            and self._puller.session.routes.address(wire.broker_name, header.suggestWhichBrokerId) == self._place
            and not self._puller.full(queue)
            and not queue.dropped
        )

    def _translated(self, error: RemotingError) -> ClientError:
        return translated(error, _PULL, self._place[0], self._queue.queue.topic)

    def _header(self) -> pulling.PullMessageHeader:
        queue, subscription = self._queue, self._subscription
        config, flags = self._puller.config, self._puller.pull_flags
        commit_offset = queue.committable() if flags & pulling.COMMIT_OFFSET else 0
        if commit_offset <= 0 or self._place[1] != MASTER:  # slaves do not keep offsets
            flags, commit_offset = flags & ~pulling.COMMIT_OFFSET, 0
        return pulling.PullMessageHeader(
            queueId=queue.queue.queue_id,
            queueOffset=queue.pulled_to,
            maxMsgNums=config.pull_batch,
            topic=queue.queue.topic,
            consumerGroup=self._puller.group,
            sysFlag=flags,
            commitOffset=commit_offset,
            suspendTimeoutMillis=round(config.poll_timeout * 1000),
            subscription=subscription.expression if flags & pulling.SUBSCRIPTION else None,
            subVersion=subscription.version,
            expressionType=subscription.expression_type,
            bname=queue.queue.broker_name,
        )
