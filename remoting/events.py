"""What happens to connections, told to whoever subscribes: the name server removes brokers, the broker clients.

Each is a plain function called between turns of the connection; one that raises ends the process, for it is ours. At
most one of `idle` and `failed` comes, then always `closed`, exactly once after `connected`. An entry made for a
connection that is already closed would never be taken back: check `connection.closed` after every await.

Java: remoting/ChannelEventListener.java
"""

from __future__ import annotations

from typing import Protocol

from rocketlet.remoting.connection import Connection


class ConnectionEvents(Protocol):
    """A subscriber. Inherit from it to get the empty functions."""

    def connected(self, connection: Connection) -> None:
        """A peer has connected (and finished the TLS handshake, if there is one)."""
        return

    def closed(self, connection: Connection) -> None:
        """The connection is gone, for whatever reason; nothing can be sent on it any more."""
        return

    def idle(self, connection: Connection) -> None:
        """Nothing went either way for as long as the idle setting says; it is about to be closed."""
        return

    def failed(self, connection: Connection) -> None:
        """It broke, or the peer sent what is no frame; it is about to be closed."""
        return
