"""Messages held by push consumers: their invisible time is renewed as long as needed, up to a limit.

A push consumer sets no invisible time itself. Its messages are invisible for defaultInvisibleTimeMills, and shortly
before that ends we extend it, until the consumer acknowledges, changes the time itself, or loses its connection; others
then get the message a second later. The consumer keeps its first handle; the valid one is kept here.

Brokers are asked by a few tasks, which take what there is to do from one queue: a task for each message would take
4 KiB and 10 µs, and a consumer may lose its connection with 200,000 messages in hand.

Java: proxy/processor/ReceiptHandleProcessor.java, proxy/service/receipt/DefaultReceiptHandleManager.java
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from rocketlet.client.errors import ClientError
from rocketlet.common.clock import WallClock
from rocketlet.common.receipt_handle import ReceiptHandle
from rocketlet.proxy.call import Owner
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.remoting.errors import HeaderError
from rocketlet.remoting.in_turns import Turns
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.popping import ChangeInvisibleTimeAnswerHeader, ChangeInvisibleTimeHeader
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.proxy.renewals")

MAX_HELD = 200_000
"""Messages that are renewed; those above keep their first invisible time."""
MAX_DUE = 2 * MAX_HELD
"""Questions to brokers that wait for their turn. What is not given back comes again when its invisible time is over."""
GIVEN_BACK_MS = 1000
_AT_ONCE = 32
_LOOK_EVERY = 1.0


@dataclass(slots=True, eq=False)
class _Renewal:
    """One message at one consumer. `handle_text` is the consumer's handle."""

    owner: Owner
    group: str
    topic: str
    handle_text: str
    current: ReceiptHandle
    until: float
    number: int


class Renewals:
    """See the module."""

    def __init__(self, config: ProxyConfig, brokers: Brokers, clock: WallClock) -> None:
        self._config = config
        self._brokers = brokers
        self._clock = clock
        self._renewals: dict[tuple[str, str], _Renewal] = {}  # by group and given handle
        self._of_owner: dict[Owner, set[tuple[str, str]]] = {}
        self._due: list[tuple[float, int, tuple[str, str]]] = []
        self._numbers = itertools.count()
        self._ask_soon, self._to_ask = trio.open_memory_channel[Callable[[], Awaitable[None]]](MAX_DUE)

    def __len__(self) -> int:
        return len(self._renewals)

    def hold(self, owner: Owner, group: str, topic: str, handle: ReceiptHandle) -> None:
        """A push consumer was given a message."""
        if len(self._renewals) >= MAX_HELD:
            return
        if owner not in self._of_owner:
            self._of_owner[owner] = set()
            owner.when_closed.append(lambda: self._give_back(owner))
        key = group, str(handle)
        until = trio.current_time() + self._config.renew_max_time_millis / 1000
        renewal = self._renewals[key] = _Renewal(owner, group, topic, key[1], handle, until, next(self._numbers))
        self._of_owner[owner].add(key)
        self._plan(key, renewal)

    def release(self, group: str, handle_text: str) -> ReceiptHandle | None:
        """Stop renewing, since the consumer has decided. Returns the valid handle."""
        renewal = self._renewals.pop((group, handle_text), None)
        if renewal is None:
            return None
        self._of_owner.get(renewal.owner, set()).discard((group, handle_text))
        return renewal.current

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(_AT_ONCE):
                nursery.start_soon(self._ask)
            while True:
                await trio.sleep(_LOOK_EVERY)
                await self._renew_due()

    async def _renew_due(self) -> None:
        """Have renewed what is due."""
        now, turns = trio.current_time(), Turns()
        while self._due and self._due[0][0] <= now:
            await turns.pause()
            _, number, key = heapq.heappop(self._due)
            renewal = self._renewals.get(key)
            if renewal is None or renewal.number != number:
                continue
            if renewal.until <= now:
                self.release(*key)
            else:
                self._start_soon(partial(self._renew, key, renewal))
        if len(self._due) > 2 * len(self._renewals) + _AT_ONCE:  # most of them were released
            numbers = {renewal.number for renewal in self._renewals.values()}
            self._due = [entry for entry in self._due if entry[1] in numbers]
            heapq.heapify(self._due)

    async def _ask(self) -> None:
        async for question in self._to_ask:
            await question()

    def _start_soon(self, question: Callable[[], Awaitable[None]]) -> None:
        try:
            self._ask_soon.send_nowait(question)
        except trio.WouldBlock:
            log.warning("%d questions to brokers about invisible times wait; no more are taken", MAX_DUE)

    def _plan(self, key: tuple[str, str], renewal: _Renewal) -> None:
        delay = (renewal.current.visible_at - self._clock() - self._config.renew_ahead_time_millis) / 1000
        heapq.heappush(self._due, (trio.current_time() + max(delay, 0.5), renewal.number, key))

    async def _renew(self, key: tuple[str, str], renewal: _Renewal) -> None:
        if self._renewals.get(key) is not renewal:
            return
        try:
            renewal.current = await self.change(
                renewal.group, renewal.topic, renewal.current, self._config.default_invisible_time_mills
            )
        except ClientError as error:
            log.warning("group %s, topic %s: a message's invisible time is not renewed: %s", *key, error)
            if renewal.current.visible_at <= self._clock():
                self.release(*key)
                return
        if self._renewals.get(key) is renewal:
            self._plan(key, renewal)

    async def change(self, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int) -> ReceiptHandle:
        """Ask the broker. Returns the new handle. Raises ClientError."""
        header = ChangeInvisibleTimeHeader(
            queueId=handle.queue_id,
            offset=handle.offset,
            invisibleTime=invisible_ms,
            consumerGroup=group,
            topic=topic,
            extraInfo=str(handle),
            bname=handle.broker_name,
        )
        address = self._brokers.masters.get(handle.broker_name)
        if address is None:
            raise ClientError(f"no master of broker {handle.broker_name[:80]!r} is known")
        answer = await self._brokers.ask(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        try:
            changed = from_ext(ChangeInvisibleTimeAnswerHeader, answer.ext)
        except HeaderError as error:
            raise ClientError(f"the answer to a change cannot be read: {error}") from error
        return handle.changed(changed.popTime, changed.invisibleTime, changed.reviveQid)

    def give_back(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """No consumer holds the message any more: make it visible soon."""
        self._start_soon(partial(self._return, group, topic, handle))

    def _give_back(self, owner: Owner) -> None:
        self._start_soon(partial(self._give_all_back, self._of_owner.pop(owner, set())))

    async def _give_all_back(self, keys: set[tuple[str, str]]) -> None:
        turns = Turns()
        for key in keys:
            await turns.pause()
            renewal = self._renewals.pop(key, None)
            if renewal is not None:
                self.give_back(renewal.group, renewal.topic, renewal.current)

    async def _return(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        try:
            await self.change(group, topic, handle, GIVEN_BACK_MS)
        except ClientError as error:
            log.info("a message of %s is not given back to group %s: %s", topic, group, error)
