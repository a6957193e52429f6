"""How safe a stored message has to be before it is acknowledged, and the waiting until it is.

A guarantee is what an acknowledgment promises about the log up to an offset: that the disk has it (SYNC_FLUSH), that a
slave has it (SYNC_MASTER). `promised` lists the ones that the settings require, `Durability` waits for them. Three
kinds of callers wait here:

- sends, by `call`: all of a turn together. No task waits, because a task switch costs 10 to 20 µs, which matters with
  one send in flight;
- the rarer requests that store something, by `answer`: one task each;
- offsets to be written to their own file, by `AfterFlush`.

Java: store/CommitLog.java (GroupCommitRequest, submitFlushRequest, submitReplicaRequest)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Reply, Request
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.feed import Feed
from rocketlet.store.config import BrokerRole, StoreConfig
from rocketlet.store.errors import FlushFailed, FlushTimeout
from rocketlet.store.message_store import MessageStore
from rocketlet.store.watermark import Waiter, Watermark


class Promise(Enum):
    """What an acknowledgment may promise beyond that the message is written."""

    FLUSHED = "the disk has it"
    REPLICATED = "a slave has it"


def promised(config: StoreConfig) -> list[Promise]:
    """The promises with these settings, in the order of RocketMQ's checks."""
    promises = [Promise.FLUSHED] if config.is_sync_flush else []
    return [*promises, Promise.REPLICATED] if config.broker_role is BrokerRole.SYNC_MASTER else promises


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a stored message is not as safe as promised, for its answer. Up to `holds_to` the log is."""

    code: ResponseCode
    remark: str | None
    holds_to: int


Then = Callable[[Shortfall | None], None]


class Guarantee(Protocol):
    """One promise about the log."""

    def call(self, end: int, then: Then) -> None:
        """Call `then` once, now or later: with None when the guarantee holds up to `end`, else with the reason.

        `then` must not raise, nor write to the store.
        """


@dataclass(slots=True, eq=False)
class _Wait:
    waiter: Waiter
    deadline: float
    timeout_ms: float
    then: Then

    @property
    def is_over(self) -> bool:
        return self.waiter.function is None


class ByWatermark:
    """A guarantee that holds up to a watermark; callers wait for at most `timeout_ms`.

    `late_answer` gives the code and remark of an answer that is late. One task, which runs while answers wait, sleeps
    until the first of them is late; under a steady load it wakes once per timeout.
    """

    def __init__(
        self,
        reached: Watermark,
        timeout_ms: Callable[[], float],
        late_answer: Callable[[float], tuple[ResponseCode, str]],
        nursery: trio.Nursery,
    ) -> None:
        self._reached = reached
        self._timeout_ms = timeout_ms
        self._late_answer = late_answer
        self._nursery = nursery
        self._waits: deque[_Wait] = deque()
        self._is_watched = False

    def call(self, end: int, then: Then) -> None:
        """See Guarantee."""
        if end <= self._reached.value or self._reached.failure is not None:
            then(self._failure(end))
            return
        timeout = self._timeout_ms()
        waiter = self._reached.call_at(end, partial(self._on_reached, end, then))
        self._waits.append(_Wait(waiter, trio.current_time() + timeout / 1000, timeout, then))
        if not self._is_watched:
            self._is_watched = True
            self._nursery.start_soon(self._watch)

    def _on_reached(self, end: int, then: Then) -> None:
        waits = self._waits
        while waits and waits[0].is_over:
            waits.popleft()
        then(self._failure(end))

    def _failure(self, end: int) -> Shortfall | None:
        """Why the watermark will never reach `end`; None if it has."""
        if end <= self._reached.value:
            return None
        return Shortfall(ResponseCode.SYSTEM_ERROR, str(self._reached.failure), 0)

    async def _watch(self) -> None:
        """They are in the order of their deadlines, unless the setting has just been lowered."""
        waits = self._waits
        try:
            while waits:
                await trio.sleep_until(waits[0].deadline)
                while waits and (waits[0].is_over or waits[0].deadline <= trio.current_time()):
                    wait = waits.popleft()
                    if not wait.is_over:
                        wait.waiter.cancel()
                        wait.then(Shortfall(*self._late_answer(wait.timeout_ms), self._reached.value))
        finally:
            # Where the broker has ended: a request is in no cycle that the collector sees, and would keep all of it.
            for wait in waits:
                wait.waiter.cancel()
            waits.clear()
        self._is_watched = False


class BySlave:
    """The guarantee of a SYNC_MASTER. Without a slave that is close enough it fails at once with 11, otherwise after
    `slaveTimeout` with 12; the message is stored in both cases, as in RocketMQ."""

    def __init__(self, feed: Feed, config: Callable[[], ReplicationConfig], nursery: trio.Nursery) -> None:
        self._feed = feed
        self._acked = ByWatermark(feed.replicated, lambda: config().slave_timeout, _no_slave_in_time, nursery)

    def call(self, end: int, then: Then) -> None:
        """See Guarantee."""
        feed = self._feed
        if end > feed.replicated.value and not feed.has_slave_in_reach(end):
            then(Shortfall(ResponseCode.SLAVE_NOT_AVAILABLE, None, feed.replicated.value))
        else:
            self._acked.call(end, then)


def _no_slave_in_time(timeout_ms: float) -> tuple[ResponseCode, str]:
    return ResponseCode.FLUSH_SLAVE_TIMEOUT, f"no slave confirmed within {timeout_ms:g} ms (slaveTimeout)"


def call_when_all_decided(guarantees: Sequence[Guarantee], end: int, then: Then) -> None:
    """`then` once all guarantees have been decided; each has its own deadline, and all run from now.

    A failure (code 1) takes precedence; otherwise the last missed guarantee is reported, as in RocketMQ.
    """
    decided: dict[Guarantee, Shortfall | None] = {}

    def decide(guarantee: Guarantee, shortfall: Shortfall | None) -> None:
        decided[guarantee] = shortfall
        if len(decided) == len(guarantees):
            shortfalls = [shortfall for guarantee in guarantees if (shortfall := decided[guarantee]) is not None]
            failures = [shortfall for shortfall in shortfalls if shortfall.code is ResponseCode.SYSTEM_ERROR]
            reported = failures or shortfalls
            then(reported[-1] if reported else None)

    for guarantee in guarantees:
        guarantee.call(end, partial(decide, guarantee))


class Durability:
    """One object per broker, in the broker's nursery."""

    def __init__(
        self,
        store: MessageStore,
        topics_file: JsonFile,
        replicated: Guarantee,
        nursery: trio.Nursery,
        *,
        strict: bool = False,
    ) -> None:
        """`strict`: a shortfall is never answered with success, not even by `answer`."""
        self._strict = strict
        self._store = store
        self._topics_file = topics_file
        self._nursery = nursery
        self._guarantees: dict[Promise, Guarantee] = {
            Promise.FLUSHED: ByWatermark(
                store.flushed, lambda: store.config.sync_flush_timeout, self._late_answer, nursery
            ),
            Promise.REPLICATED: replicated,
        }

    @property
    def is_waited_for(self) -> bool:
        """Whether an acknowledgment promises more than that the log has it."""
        config = self._store.config
        return config.is_sync_flush or config.broker_role is BrokerRole.SYNC_MASTER

    def call(self, end: int, then: Then) -> None:
        """Call `then` once: with None when all promises hold up to `end`, else with the reason.

        `then` must not raise, nor write to the store.
        """
        self.want_flush_soon()
        guarantees = [self._guarantees[promise] for promise in promised(self._store.config)]
        if len(guarantees) == 1:
            guarantees[0].call(end, then)
        elif guarantees:
            call_when_all_decided(guarantees, end, then)
        else:
            then(None)

    def want_flush_soon(self) -> None:
        """With SYNC_FLUSH, have what was put flushed soon, even if no sender waits (waitStoreMsgOK=false)."""
        if self._store.config.is_sync_flush:
            self._store.want_flush()

    def answer(
        self,
        request: Request,
        end: int,
        reply: Reply,
        late: ResponseCode,
        announced: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer | Deferred:
        """The answer to a request other than a send that stored something, once the log is as safe up to `end` as for
        sends.

        It is never sent before the topic created by the first of them is saved, or the stored message would be
        unreadable after a crash. `announced` is awaited too, given where such a topic was created: it returns when the
        name servers know it, or after a moment. `late` is its code if the disk takes too long. A slave that does not
        confirm delays it and changes nothing else: RocketMQ, which waits for neither here, answers success too.
        """
        if request.is_oneway:
            self.want_flush_soon()
        if request.is_oneway or not (announced or promised(self._store.config) or self._topics_file.dirty):
            return reply
        self._nursery.start_soon(self._answer_later, request, end, reply, late, announced)
        return DEFERRED

    async def _answer_later(
        self,
        request: Request,
        end: int,
        reply: Reply,
        late: ResponseCode,
        announced: Callable[[], Awaitable[None]] | None,
    ) -> None:
        try:
            await self._topics_file.saved()
            if announced is not None:
                await announced()
            if self._store.config.is_sync_flush:
                await self._store.flushed_to(end, self._store.config.sync_flush_timeout)
            if Promise.REPLICATED in promised(self._store.config):
                shortfall = await self._replicated(end)
                if shortfall is not None and self._strict:
                    reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=shortfall.remark)
        except FlushTimeout as error:
            reply = Reply(late, reply.header, remark=str(error))
        except (FlushFailed, NotSaved) as error:
            reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=str(error))
        request.reply(reply)

    async def _replicated(self, end: int) -> Shortfall | None:
        decided, outcomes = trio.Event(), list[Shortfall | None]()

        def decide(shortfall: Shortfall | None) -> None:
            outcomes.append(shortfall)
            decided.set()

        self._guarantees[Promise.REPLICATED].call(end, decide)
        await decided.wait()
        return outcomes[0]

    def _late_answer(self, timeout_ms: float) -> tuple[ResponseCode, str]:
        return ResponseCode.FLUSH_DISK_TIMEOUT, str(self._store.flush_is_late(timeout_ms))


T = TypeVar("T")


class AfterFlush(Generic[T]):
    """Keeps a file from being ahead of the disk: of the noted values, passes on the latest one that is flushed.

    Offsets record that something was done: a delayed message delivered, a transaction ended. They are saved in small
    files, flushed at once, while the record itself may still wait for its flush. A power cut between the two would
    leave an offset that refers to a lost record, and the message would be lost with it. So such an offset is noted
    here, and `take` is called when the log is flushed up to where it was noted; values are passed in the order in which
    they were noted, some of them skipped.
    """

    def __init__(self, store: MessageStore, take: Callable[[T], None]) -> None:
        self._store = store
        self._pass_on = take
        self._latest: tuple[int, T] | None = None
        self._awaited: tuple[int, T] | None = None

    def note(self, value: T) -> None:
        """Note a value that refers to the log as it is now."""
        self._latest = (self._store.log.end, value)
        if self._awaited is None:
            self._wait()

    def _wait(self) -> None:
        """Pass on the latest value, or wait for its flush. After a failed flush nothing is passed on."""
        noted, self._latest = self._latest, None
        if noted is None:
            return
        end, value = noted
        for watermark in self._watermarks():
            if watermark.value < end:
                if watermark.failure is None:
                    self._awaited = noted
                    watermark.call_at(end, self._on_flushed)
                return
        self._pass_on(value)

    def _on_flushed(self) -> None:
        noted, self._awaited = self._awaited, None
        assert noted is not None
        newer, self._latest = self._latest, noted
        self._wait()  # passes it on, or waits for another watermark
        self._latest = newer
        if self._awaited is None:
            self._wait()

    def _watermarks(self) -> list[Watermark]:
        """The watermarks that have to be reached. If replicas elect their master, an offset refers to nothing that
        another leader may cut off."""
        store = self._store
        return [store.flushed] if store.confirmed is None else [store.flushed, store.confirmed]
