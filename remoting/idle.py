"""Closes connections without traffic in either direction: one task for all, which sleeps until the first may be due.

Java: remoting/netty/NettyRemotingServer.java (IdleStateHandler)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import trio

from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents, notify

log = logging.getLogger("rocketlet.remoting.idle")


async def close_idle(
    connections: Callable[[], Collection[Connection]], idle_timeout: float, events: Sequence[ConnectionEvents]
) -> None:
    """Run until cancelled. `idle_timeout`: seconds without traffic."""
    while True:
        now = trio.current_time()
        next_look = now + idle_timeout
        for connection in [one for one in connections() if not one.closed]:
            due = connection.last_active + idle_timeout
            if due > now:
                next_look = min(next_look, due)
                continue
            log.info("%s was idle for %g s; its connection is closed", connection.peer, idle_timeout)
            notify(events, "idle", connection)
            connection.close()
        await trio.sleep_until(next_look)
