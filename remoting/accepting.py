"""Accepting connections: no connection's error ends a server, and only resource exhaustion makes it pause.

Java: remoting/netty/NettyRemotingServer.java
"""

from __future__ import annotations

import errno
import logging

import trio

from rocketlet.remoting.transport import ByteStream, Listener

_AGAIN_SECONDS = 0.1
# The system is out of resources: retrying at once would only burn CPU. All other errors of accept concern the one
# connection that was about to be accepted.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def accepted(listener: Listener, log: logging.Logger) -> ByteStream:
    """The next connection."""
    while True:
        try:
            return await listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                log.error("cannot accept connections on %s: %s; trying again", listener.address, error)
                await trio.sleep(_AGAIN_SECONDS)
            else:
                log.info("a connection to %s ended before it was accepted: %s", listener.address, error)
