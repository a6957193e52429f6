"""Events of connections, for subscribers: the name server removes brokers, the broker clients.

Each event is a plain function called between turns of the connection. At most one of `idle` and `failed` is called,
then always `closed`, exactly once after `connected`. An entry made for a connection that is already closed would never
be removed: check `connection.closed` after every await.

Java: remoting/ChannelEventListener.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, Protocol

from rocketlet.remoting.connection import Connection

log = logging.getLogger("rocketlet.remoting.events")


class ConnectionEvents(Protocol):
    """A subscriber. Inherit from it to get the empty functions."""

    def connected(self, connection: Connection) -> None:
        """A peer has connected (and finished the TLS handshake, if there is one)."""
        return

    def closed(self, connection: Connection) -> None:
        """The connection has closed, for whatever reason; nothing can be sent on it any more."""
        return

    def idle(self, connection: Connection) -> None:
        """There was no traffic for the idle time; it is about to be closed."""
        return

    def failed(self, connection: Connection) -> None:
        """It broke, or the peer sent something that is not a frame; it is about to be closed."""
        return


def notify(
    subscribers: Iterable[ConnectionEvents],
    event: Literal["connected", "closed", "idle", "failed"],
    connection: Connection,
) -> None:
    """Call this event of every subscriber. A failing one is logged, and the others are still called."""
    for subscriber in subscribers:
        try:
            getattr(subscriber, event)(connection)
        except Exception:
            log.exception("%s failed at the event %r of %r", type(subscriber).__name__, event, connection)
