"""Accepting connections: no error of a connection ends a server, and only an exhausted system makes it wait.

Java: remoting/netty/NettyRemotingServer.java
"""

from __future__ import annotations

import errno
import logging

import trio

from rocketlet.remoting.transport import ByteStream, Listener

_AGAIN_SECONDS = 0.1
# The system has nothing left to accept with: trying again at once would only burn the CPU. All other errors of accept
# belong to the one connection that was about to be accepted.
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
