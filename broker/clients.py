"""The connected clients: the effect of heartbeats, unregistering, silence and lost connections on the registries, and
who is notified.

Whenever a consumer group gains or loses a member or a topic, all members are notified by a one-way
NOTIFY_CONSUMER_IDS_CHANGED (40), so that they rebalance at once and not in their next round after 20 s. A task does
this: at 5 µs per member, a joining client of a thousand groups would hold the loop for a second.

So would one with a megabyte of SQL92 expressions: a task compiles what is too much for one turn. Until then pulls of
these topics get FILTER_DATA_NOT_EXIST, as before a first heartbeat.

Invariant: a closed connection is in no registry; a heartbeat after the end of its connection registers nothing.

Java: broker/client/ClientHousekeepingService.java, DefaultConsumerIdsChangeListener.java, net/Broker2Client.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_groups import ConsumerGroups, Consuming, Member
from rocketlet.broker.filter.consumer_filters import Allowance, ConsumerFilters
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.common.clock import monotonic_ms
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.command import request
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.in_turns import Turns
from rocketlet.remoting.protocol.membership import NotifyConsumerIdsChangedHeader
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.broker.clients")

SCAN_SECONDS = 10.0
# After a notice, for each member that got it. It takes 5 µs, so changes of groups never take more than a fifth of the
# broker: 20,000 members that come one by one are 200 million notices, were each told of each.
REST_SECONDS = 0.000_02


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One heartbeat, in the broker's types."""

    client_id: str
    language: str
    version: int
    consuming: Sequence[Consuming]
    producing: Sequence[str]


class Clients(ConnectionEvents):
    """Keeps the registries of consumers and producers up to date."""

    def __init__(
        self,
        settings: Settings,
        groups: SubscriptionGroups,
        filters: ConsumerFilters,
        long_poll: LongPoll,
        locks: QueueLocks[WireQueue],
        clock: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._filters = filters
        self._long_poll = long_poll
        self._locks = locks
        self._clock = clock
        self.consumers = ConsumerGroups()
        self.producers = ProducerGroups()
        self._to_notify: dict[str, None] = {}
        self._changed = trio.Event()
        self._to_compile: dict[str, list[Subscription]] = {}  # by group, from its latest heartbeat
        self._has_more = trio.Event()

    def heartbeat(self, connection: Connection, beat: Heartbeat) -> bool:
        """Whether the client has joined a consumer group, or changed what it subscribes there."""
        if connection.closed:
            return False
        has_joined, allowance = False, Allowance()
        now, monotonic_now = self._clock(), monotonic_ms()
        for consuming in beat.consuming:
            member = Member(connection, beat.client_id, beat.language, beat.version, monotonic_now, seen_at=now)
            if self.consumers.register(member, consuming):
                has_joined = True
                self._notify_soon(consuming.group)
            remaining = self._filters.register(consuming.group, consuming.subscriptions, now, allowance)
            self._compile_soon(consuming.group, remaining)
        member = Member(connection, beat.client_id, beat.language, beat.version, monotonic_now, seen_at=now)
        for group in beat.producing:
            self.producers.register(group, member)
        return has_joined

    def leave_consumer_group(self, group: str, connection: Connection) -> None:
        if self.consumers.unregister(group, connection):
            self._on_change(group)

    def leave_producer_group(self, group: str, connection: Connection) -> None:
        self.producers.unregister(group, connection)

    def closed(self, connection: Connection) -> None:
        """The connection has closed: remove its client everywhere."""
        self._long_poll.dropped(connection)
        self.producers.connection_closed(connection)
        for group, client_id in self.consumers.connection_closed(connection):
            # A killed client would hold its queues for another minute. One that reconnected before this connection was
            # seen to end keeps them.
            if not self.consumers.is_member(group, client_id):
                self._locks.client_left(group, client_id)
            self._on_change(group)

    async def drop_silent(self) -> None:
        """Close connections whose client has sent no heartbeat for too long; runs until cancelled."""
        while True:
            await trio.sleep(SCAN_SECONDS)
            # By a monotonic clock: setting the wall clock a day ahead would close every connection.
            now, turns = monotonic_ms(), Turns()
            for member in [*self.consumers.expired(now), *self.producers.expired(now)]:
                await turns.pause()
                if member.connection.closed:
                    continue
                log.warning("%s (%s) has sent no heartbeat for 120 s: closed", member.client_id, member.connection.peer)
                member.connection.close()
                self.closed(member.connection)

    def _on_change(self, group: str) -> None:
        if self.consumers.get(group) is None:
            self._to_compile.pop(group, None)
            self._filters.group_left(group, self._clock())
        else:
            self._notify_soon(group)

    def _notify_soon(self, group: str) -> None:
        self._to_notify[group] = None
        self._changed.set()

    def _compile_soon(self, group: str, subscriptions: list[Subscription]) -> None:
        self._to_compile.pop(group, None)
        if subscriptions:
            self._to_compile[group] = subscriptions
            self._has_more.set()

    async def compile_filters(self) -> None:
        """Compile the filters that heartbeats brought too many of at once; runs until cancelled."""
        while True:
            await self._has_more.wait()
            self._has_more, turns = trio.Event(), Turns()
            while self._to_compile:
                group, subscriptions = next(iter(self._to_compile.items()))
                self._filters.take(group, subscriptions.pop(), self._clock())
                if not subscriptions:
                    del self._to_compile[group]
                await turns.pause()

    async def notify(self) -> None:
        """Tell the members of each group that has changed; runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed, turns, count = trio.Event(), Turns(), 0
            while self._to_notify:
                group = next(iter(self._to_notify))
                del self._to_notify[group]
                members = self._recipients(group)
                count += len(members)
                for member in members:
                    await turns.pause()
                    _notify_member(member, group)
            await trio.sleep(count * REST_SECONDS)

    def _recipients(self, group: str) -> list[Member]:
        """Who is notified of changes of a group."""
        config, members = self._groups.get(group), self.consumers.get(group)
        if members is None or not self._settings.now.notify_consumer_ids_changed_enable:
            return []
        if config is not None and not config.notifyConsumerIdsChangedEnable:
            return []
        return list(members.members.values())


def _notify_member(member: Member, group: str) -> None:
    header = NotifyConsumerIdsChangedHeader(consumerGroup=group)
    try:
        member.connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
    except RemotingError as error:  # it will notice within 20 s, or is gone
        log.info("cannot tell %s that group %s has changed: %s", member.client_id, group, error)
