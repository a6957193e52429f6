"""The connected clients: what heartbeats, unregistering, silence and lost connections do to the registries, and who is
notified.

Whenever a member or a topic of a consumer group comes or goes, all members are notified by a one-way
NOTIFY_CONSUMER_IDS_ CHANGED (40), so that they share the queues out again at once and not at their next round of 20 s.

Invariant: a closed connection is in no registry; a heartbeat that comes after its connection's end registers nothing.

Java: broker/client/ClientHousekeepingService.java, DefaultConsumerIdsChangeListener.java, net/Broker2Client.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_groups import ConsumerGroups, Consuming, Member
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.common.clock import monotonic_ms
from rocketlet.remoting.command import request
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.protocol.membership import NotifyConsumerIdsChangedHeader
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.broker.clients")

SCAN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One heartbeat, in the broker's own terms."""

    client_id: str
    language: str
    version: int
    consuming: Sequence[Consuming]
    producing: Sequence[str]


class Clients(ConnectionEvents):
    """Keeps the registries of consumers and producers true."""

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

    def heartbeat(self, connection: Connection, beat: Heartbeat) -> None:
        if connection.closed:
            return
        now, seen = self._clock(), monotonic_ms()
        for consuming in beat.consuming:
            member = Member(connection, beat.client_id, beat.language, beat.version, seen, seen_at=now)
            if self.consumers.register(member, consuming):
                self._notify(consuming.group)
            self._filters.register(consuming.group, consuming.subscriptions, now)
        for group in beat.producing:
            member = Member(connection, beat.client_id, beat.language, beat.version, seen, seen_at=now)
            self.producers.register(group, member)

    def leave_consumer_group(self, group: str, connection: Connection) -> None:
        if self.consumers.unregister(group, connection):
            self._left(group)

    def leave_producer_group(self, group: str, connection: Connection) -> None:
        self.producers.unregister(group, connection)

    def closed(self, connection: Connection) -> None:
        """The connection is gone, and with it all that its client was."""
        self._long_poll.dropped(connection)
        self.producers.connection_closed(connection)
        for group, client_id in self.consumers.connection_closed(connection):
            # A client that was killed would hold its queues for another minute. One that came back on another
            # connection before this one was seen to end keeps them.
            if not self.consumers.is_member(group, client_id):
                self._locks.client_left(group, client_id)
            self._left(group)

    async def drop_silent(self) -> None:
        """Close connections whose client has sent no heartbeat for too long; runs until cancelled."""
        while True:
            await trio.sleep(SCAN_SECONDS)
            # By a clock that cannot be set: a wall clock set forward by a day would close every connection.
            now = monotonic_ms()
            for member in [*self.consumers.expired(now), *self.producers.expired(now)]:
                log.warning("%s (%s) has sent no heartbeat for 120 s: closed", member.client_id, member.connection.peer)
                member.connection.close()
                self.closed(member.connection)

    def _left(self, group: str) -> None:
        if self.consumers.get(group) is None:
            self._filters.group_left(group, self._clock())
        else:
            self._notify(group)

    def _notify(self, group: str) -> None:
        known = self._groups.known(group)
        members = self.consumers.get(group)
        if members is None or not self._settings.now.notify_consumer_ids_changed_enable:
            return
        if known is not None and not known.notifyConsumerIdsChangedEnable:
            return
        for member in list(members.members.values()):
            header = NotifyConsumerIdsChangedHeader(consumerGroup=group)
            try:
                member.connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            except RemotingError as error:  # it will see for itself within 20 s, or is gone
                log.info("cannot tell %s that group %s has changed: %s", member.client_id, group, error)
