"""When a broker is no longer alive: its connection has ended, or it has been silent for the length of a lease.

The connection that a broker registered over is its lease: closed, broken or idle, the broker leaves the routes at once.
A broker whose host hangs keeps its connection open and is found by the scan, 120 s after its last registration; the
scan runs every 10 s. Leases are measured by trio's clock, which cannot be set: correcting the wall clock by two minutes
would drop every broker at once.

Java: namesrv/routeinfo/BrokerHousekeepingService.java, RouteInfoManager.java (scanNotActiveBroker)
"""

from __future__ import annotations

import logging

import trio

from rocketlet.common.clock import monotonic_ms
from rocketlet.namesrv.route_table import LEASE_MS, RouteTable
from rocketlet.namesrv.route_values import Expired
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.in_turns import in_turns, run_all

log = logging.getLogger("rocketlet.namesrv.liveness")

FIRST_SCAN_S = 5
SCAN_EVERY_S = 10


class Liveness(ConnectionEvents):
    """Removes dead brokers from the table."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._departed = trio.Event()
        table.on_stale = self._has_left

    def connected(self, connection: Connection) -> None:
        pass  # nothing to do: a connection becomes a broker's by registering

    def closed(self, connection: Connection) -> None:
        self._forget(connection, "closed")

    def idle(self, connection: Connection) -> None:
        self._forget(connection, "is idle")

    def failed(self, connection: Connection) -> None:
        self._forget(connection, "failed")

    def _has_left(self) -> None:
        self._departed.set()

    async def sweep(self) -> None:
        """Remove the topics of brokers that have left, in turns, until cancelled."""
        while True:
            await self._departed.wait()
            self._departed = trio.Event()
            await run_all(self._table.sweep())

    async def scan(self) -> None:
        """Until cancelled."""
        due = trio.current_time() + FIRST_SCAN_S
        while True:
            await trio.sleep_until(due)
            delay = trio.current_time() - due
            # A process that was stopped, or a machine that slept, finds every lease expired while the registrations
            # that would renew them are still unread. They are read before the next scan.
            if delay < SCAN_EVERY_S:
                await in_turns(self._table.expire(monotonic_ms()), _close)
            else:
                log.warning("the scan for silent brokers is %d s late; giving them until the next", delay)
            due = trio.current_time() + SCAN_EVERY_S

    def _forget(self, connection: Connection, reason: str) -> None:
        for address in self._table.forget(connection):
            log.warning("broker %s is gone: its connection from %s %s", address, connection.peer, reason)


def _close(expired: Expired) -> None:
    log.warning(
        "broker %s (%s) expired: no registration for %d s", expired.address, expired.broker_name, LEASE_MS // 1000
    )
    assert isinstance(expired.connection, Connection)
    expired.connection.close()
