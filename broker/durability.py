"""How safe what was stored has to be before it is acknowledged, and who waits until it is.

A guarantee is something that an acknowledgment promises of the log up to an offset: that the disk has it (SYNC_FLUSH),
that a slave has it (SYNC_MASTER). `promised` says which ones the settings ask for, `Durability` what each of them waits
for. Three kinds of callers wait here:

- sends, by `call`: all of a turn together. No task waits, because a task switch costs 10 to 20 µs, which is felt with
  one send in flight;
- the rarer requests that store something, by `answer`: a task each;
- offsets on their way to a file of their own, by `AfterFlush`.

Java: store/CommitLog.java (GroupCommitRequest, submitFlushRequest, submitReplicaRequest)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
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
    """What an acknowledgment may promise of the log, besides that the message is written."""

    FLUSHED = "the disk has it"
    REPLICATED = "a slave has it"


def promised(config: StoreConfig) -> list[Promise]:
    """What acknowledgments promise with these settings, in the order of RocketMQ's checks."""
    promises = [Promise.FLUSHED] if config.is_sync_flush else []
    return [*promises, Promise.REPLICATED] if config.broker_role is BrokerRole.SYNC_MASTER else promises


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why what was stored is not as safe as promised, as its answer says it. Up to `held_to` it is."""

    code: ResponseCode
    remark: str | None
    held_to: int


Then = Callable[[Shortfall | None], None]


class Guarantee(Protocol):
    """Something that an acknowledgment promises of the log."""

    def call(self, end: int, then: Then) -> None:
        """Call `then` once, now or later: with None when the guarantee holds up to `end`, else with why it may not.

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
    """A guarantee that holds as far as a watermark has come, and that callers wait for at most `timeout_ms`.

    `late` makes the code and remark of an answer that is too late. One task, which runs while answers wait, sleeps
    until the first of them is late; under a steady load it wakes once in a timeout.
    """

    def __init__(
        self,
        reached: Watermark,
        timeout_ms: Callable[[], float],
        late: Callable[[float], tuple[ResponseCode, str]],
        nursery: trio.Nursery,
    ) -> None:
        self._reached = reached
        self._timeout_ms = timeout_ms
        self._late = late
        self._nursery = nursery
        self._waits: deque[_Wait] = deque()
        self._is_watched = False

    def call(self, end: int, then: Then) -> None:
        """See Guarantee."""
        if end <= self._reached.value or self._reached.failure is not None:
            then(self._failure(end))
            return
        timeout = self._timeout_ms()
        waiter = self._reached.call_at(end, partial(self._called, end, then))
        self._waits.append(_Wait(waiter, trio.current_time() + timeout / 1000, timeout, then))
        if not self._is_watched:
            self._is_watched = True
            self._nursery.start_soon(self._watch)

    def _called(self, end: int, then: Then) -> None:
        waits = self._waits
        while waits and waits[0].is_over:
            waits.popleft()
        then(self._failure(end))

    def _failure(self, end: int) -> Shortfall | None:
        """Why the watermark will never reach `end`; None where it has."""
        if end <= self._reached.value:
            return None
        return Shortfall(ResponseCode.SYSTEM_ERROR, str(self._reached.failure), 0)

    async def _watch(self) -> None:
        """They come in the order of their deadlines, unless the setting has just been lowered."""
        waits = self._waits
        while waits:
            await trio.sleep_until(waits[0].deadline)
            while waits and (waits[0].is_over or waits[0].deadline <= trio.current_time()):
                wait = waits.popleft()
                if not wait.is_over:
                    wait.waiter.cancel()
                    wait.then(Shortfall(*self._late(wait.timeout_ms), self._reached.value))
        self._is_watched = False


class BySlave:
    """The guarantee of a SYNC_MASTER. Without a slave that is near enough it is decided at once: 11, else after
    `slaveTimeout`: 12; the message is stored in both cases, as in RocketMQ."""

    def __init__(self, feed: Feed, config: Callable[[], ReplicationConfig], nursery: trio.Nursery) -> None:
        self._feed = feed
        self._acked = ByWatermark(feed.replicated, lambda: config().slave_timeout, _no_slave_in_time, nursery)

    def call(self, end: int, then: Then) -> None:
        """See Guarantee."""
        feed = self._feed
        if end > feed.replicated.value and not feed.has_slave_near(end):
            then(Shortfall(ResponseCode.SLAVE_NOT_AVAILABLE, None, feed.replicated.value))
        else:
            self._acked.call(end, then)


def _no_slave_in_time(timeout_ms: float) -> tuple[ResponseCode, str]:
    return ResponseCode.FLUSH_SLAVE_TIMEOUT, f"no slave confirmed within {timeout_ms:g} ms (slaveTimeout)"


def call_for_all(guarantees: Sequence[Guarantee], end: int, then: Then) -> None:
    """`then` once all guarantees have been decided; each has its own deadline, and all run from now.

    A failure (code 1) outweighs the rest; otherwise the last guarantee that fell short is reported, as in RocketMQ.
    """
    decided: dict[Guarantee, Shortfall | None] = {}

    def decide(guarantee: Guarantee, shortfall: Shortfall | None) -> None:
        decided[guarantee] = shortfall
        if len(decided) == len(guarantees):
            short = [found for one in guarantees if (found := decided[one]) is not None]
            failed = [found for found in short if found.code is ResponseCode.SYSTEM_ERROR]
            told = failed or short
            then(told[-1] if told else None)

    for guarantee in guarantees:
        guarantee.call(end, partial(decide, guarantee))


class Durability:
    """One object for the whole broker; its nursery is the broker's."""

    def __init__(
        self,
        store: MessageStore,
        topics_file: JsonFile,
        replicated: Guarantee,
        nursery: trio.Nursery,
        *,
        strict: bool = False,
    ) -> None:
        """`strict`: what falls short is never answered with success, by `answer` neither."""
        self._strict = strict
        self._store = store
        self._topics_file = topics_file
        self._nursery = nursery
        self._guarantees: dict[Promise, Guarantee] = {
            Promise.FLUSHED: ByWatermark(store.flushed, lambda: store.config.sync_flush_timeout, self._late, nursery),
            Promise.REPLICATED: replicated,
        }

    def call(self, end: int, then: Then) -> None:
        """Call `then` once: with None when all that is promised holds up to `end`, else with why it may not.

        `then` must not raise, nor write to the store.
        """
        self.hasten()
        guarantees = [self._guarantees[promise] for promise in promised(self._store.config)]
        if len(guarantees) == 1:
            guarantees[0].call(end, then)
        elif guarantees:
            call_for_all(guarantees, end, then)
        else:
            then(None)

    def hasten(self) -> None:
        """With SYNC_FLUSH, make sure that what was put is flushed soon, even if no sender waits
        (waitStoreMsgOK=false)."""
        if self._store.config.is_sync_flush:
            self._store.want_flush()

    def answer(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> Answer | Deferred:
        """The answer to a request that stored something and is no send, once the log is as safe up to `end` as sends
        wait for.

        It never goes out before the topic that the first of them created is saved, or what it stored could not be read
        after a crash. `late` is its code where the disk takes too long. A slave that does not confirm delays it and
        changes nothing: RocketMQ, which waits for neither here, answers success too.
        """
        if request.is_oneway:
            self.hasten()
        if request.is_oneway or not (promised(self._store.config) or self._topics_file.dirty):
            return reply
        self._nursery.start_soon(self._answer_later, request, end, reply, late)
        return DEFERRED

    async def _answer_later(self, request: Request, end: int, reply: Reply, late: ResponseCode) -> None:
        try:
            await self._topics_file.saved()
            if self._store.config.is_sync_flush:
                await self._store.flushed_to(end, self._store.config.sync_flush_timeout)
            if Promise.REPLICATED in promised(self._store.config):
                shortfall = await self._replicated(end)
                if shortfall is not None and self._strict:
                    reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=shortfall.remark)
        except FlushTimeout as timeout:
            reply = Reply(late, reply.header, remark=str(timeout))
        except (FlushFailed, NotSaved) as failed:
            reply = Reply(ResponseCode.SYSTEM_ERROR, reply.header, remark=str(failed))
        request.reply(reply)

    async def _replicated(self, end: int) -> Shortfall | None:
        decided, found = trio.Event(), list[Shortfall | None]()

        def decide(shortfall: Shortfall | None) -> None:
            found.append(shortfall)
            decided.set()

        self._guarantees[Promise.REPLICATED].call(end, decide)
        await decided.wait()
        return found[0]

    def _late(self, timeout_ms: float) -> tuple[ResponseCode, str]:
        return ResponseCode.FLUSH_DISK_TIMEOUT, str(self._store.flush_is_late(timeout_ms))


T = TypeVar("T")


class AfterFlush(Generic[T]):
    """Keeps a file from claiming what the disk does not have: of the values noted, hands on the latest that may be.

    Offsets record that something was done: a delayed message delivered, a transaction ended. They are saved in small
    files, flushed at once, while the record that was made for it may wait for its flush. A power cut between the two
    would leave an offset that speaks of a record which is gone, and the message with it. So such an offset is noted
    here, and `take`, which only takes note, is called when the log is flushed up to where it was noted; with values in
    the order in which they were noted, some of them left out.
    """

    def __init__(self, store: MessageStore, take: Callable[[T], None]) -> None:
        self._store = store
        self._take = take
        self._latest: tuple[int, T] | None = None
        self._waited: tuple[int, T] | None = None

    def note(self, value: T) -> None:
        """The value holds for everything that is in the log now."""
        self._latest = (self._store.log.end, value)
        if self._waited is None:
            self._wait()

    def _wait(self) -> None:
        """Hand the latest on, or wait for its flush. After a failed flush nothing is handed on any more."""
        noted, self._latest = self._latest, None
        if noted is None:
            return
        end, value = noted
        for mark in self._marks():
            if mark.value < end:
                if mark.failure is None:
                    self._waited = noted
                    mark.call_at(end, self._reached)
                return
        self._take(value)

    def _reached(self) -> None:
        noted, self._waited = self._waited, None
        assert noted is not None
        newer, self._latest = self._latest, noted
        self._wait()  # takes it, or waits for another mark
        self._latest = newer
        if self._waited is None:
            self._wait()

    def _marks(self) -> list[Watermark]:
        """What has to have come so far. Where replicas elect their master, an offset speaks of nothing that may be cut
        off when another one leads."""
        store = self._store
        return [store.flushed] if store.confirmed is None else [store.flushed, store.confirmed]
