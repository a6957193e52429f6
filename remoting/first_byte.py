"""Detecting TLS by the first byte of a new connection: a ClientHello begins with 22, a plain frame with 0.

A plain frame begins with 0, because none is as long as 16 MiB; so does a slave's first report, because no log is as
long as 2^56 bytes.

Java: remoting/netty/NettyRemotingServer.java (HandshakeHandler)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketlet.remoting.config import TlsMode
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.transport import ByteStream, host_of

if TYPE_CHECKING:
    from rocketlet.remoting.own_context import OwnContext
    from rocketlet.remoting.tls import TlsContexts

_CLIENT_HELLO = 0x16


async def detect_tls(
    raw: ByteStream,
    mode: TlsMode,
    tls: TlsContexts | OwnContext | None,
    seconds: float,
    log: logging.Logger,
    peers: Peers | None = None,
) -> tuple[ByteStream, bytes] | None:
    """Wait for the first byte. Returns the stream to serve, and the bytes already read; None: close it."""
    peers = peers or Peers()
    try:
        with trio.move_on_after(seconds):
            first = await raw.receive_some()
            if not first:
                return None
            if first[0] != _CLIENT_HELLO:
                if mode is not TlsMode.ENFORCING:
                    return raw, first
                if peers.may_log(host_of(raw.peer), trio.current_time()):
                    log.warning("%s connects without TLS, which tls.server.mode=enforcing refuses", raw.peer)
                return None
            if tls is None:
                if peers.may_log(host_of(raw.peer), trio.current_time()):
                    log.warning("%s wants TLS; set tls.server.mode, certPath and keyPath to offer it", raw.peer)
                return None
            context = await tls.ready()
            if context is None:
                return None
            from rocketlet.remoting.tls import PrefixedStream, secured

            return await secured(PrefixedStream(raw, first), context, server_side=True), b""
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        log.info("%s broke before its first request: %s", raw.peer, error.__cause__ or error)
    return None
