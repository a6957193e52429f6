"""The heartbeats of one client: to all brokers that it knows every 30 s, to a new broker at once.

A broker that could not be reached gets one whenever missing routes are looked for, behind those that are new. So many
are under way at once and no more (`side_by_side`), and those that are known to answer get theirs first: they would
forget this client after two minutes, which is less than a thousand silent ones take.

Java: client/impl/factory/MQClientInstance.java#sendHeartbeatToAllBroker
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.client.errors import ClientError
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.client.talking.side_by_side import AT_ONCE, for_each
from rocketlet.client.wakeup import Wakeup

log = logging.getLogger("rocketlet.client.heartbeats")

_SHORTEST_PAUSE = 1.0


class Heartbeats:
    """The heartbeats of one client. Lives on its loop."""

    def __init__(
        self,
        brokers: BrokerCalls,
        targets: Callable[[], set[str]],
        body: Callable[[], bytes | None],
        *,
        interval: float,
        timeout: float,
    ) -> None:
        """`targets` are the addresses of all brokers. `body` is None while there is nothing to tell them."""
        self._brokers = brokers
        self._targets = targets
        self._body = body
        self._interval = interval
        self._timeout = timeout
        self._told: set[str] = set()  # or about to be told
        self._known_by: set[str] = set()
        self._failed: set[str] = set()
        self._to_greet: dict[str, None] = {}
        self._greeting = 0  # tasks
        self._wanted = Wakeup()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Send them until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                began = trio.current_time()
                await self._to_all(self._interval)
                pause = self._interval - (trio.current_time() - began)
                await self._wanted.wait(max(pause, _SHORTEST_PAUSE))

    def are_answered_by(self, address: str) -> bool:
        """Whether the broker there knows this client: it has answered the last one."""
        return address in self._known_by

    def soon(self) -> None:
        """Some broker does not know this client, or its subscription: send all of them one."""
        self._wanted.set()

    async def to_all(self) -> None:
        """Send all brokers one, now, and wait for their answers, but no longer than for that of one."""
        await self._to_all(self._timeout)

    async def _to_all(self, seconds: float) -> None:
        if self._body() is not None:
            with trio.move_on_after(seconds):
                await self.to(self._targets())

    async def to(self, addresses: set[str]) -> None:
        """Send these one, and wait until all have answered or failed."""
        remaining = set(addresses)

        async def to_one(address: str) -> None:
            await self._to_one(address)
            remaining.discard(address)

        self._told |= addresses
        try:
            await for_each(sorted(addresses, key=self._order), to_one)
        finally:
            self._told -= remaining  # cancelled: they get theirs by `greet_new`

    def _order(self, address: str) -> tuple[bool, bool, str]:
        return address not in self._known_by, address in self._failed, address

    def greet_new(self) -> None:
        """Begin to send one to brokers that have had none yet, or could not be reached."""
        targets = self._targets()
        new = targets - self._told
        if not new or self._nursery is None or self._body() is None:
            return
        self._told |= new
        waiting = targets.intersection(self._to_greet) | new
        self._to_greet = dict.fromkeys(sorted(waiting, key=self._order))
        for _ in range(min(AT_ONCE - self._greeting, len(new))):
            self._greeting += 1
            self._nursery.start_soon(self._greet_some)

    async def _greet_some(self) -> None:
        try:
            while self._to_greet:
                address = next(iter(self._to_greet))
                del self._to_greet[address]
                await self._to_one(address)
        finally:
            self._greeting -= 1

    def forget_vanished(self) -> None:
        """The targets have changed."""
        targets = self._targets()
        for addresses in (self._told, self._known_by, self._failed):
            addresses &= targets

    async def _to_one(self, address: str) -> None:
        body = self._body()
        if body is None:
            return
        try:
            await self._brokers.heartbeat(address, body)
        except ClientError as error:
            self._told.discard(address)
            self._known_by.discard(address)
            # It is tried every few seconds.
            log.log(logging.INFO if address in self._failed else logging.WARNING, "heartbeat failed: %s", error)
            self._failed.add(address)
        else:
            self._known_by.add(address)
            self._failed.discard(address)
