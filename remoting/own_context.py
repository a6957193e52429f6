"""The TLS context of a server without a certificate: created at the first handshake, in a thread, and kept.

RocketMQ's servers do so too (tls.test.mode.enable). A client that verifies no certificate, as RocketMQ's are
configured, then has a connection that is safe from passive eavesdropping. `ssl` and `cryptography` are imported by the
first TLS client; a server that has none pays nothing.

Java: remoting/netty/TlsHelper.java (buildSslContext)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("rocketlet.remoting.own_context")


class OwnContext:
    """A stand-in for `tls.TlsContexts`."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._making = trio.Lock()

    async def ready(self) -> ssl.SSLContext | None:
        """The context for the next handshake; None if it cannot be created: the log says what to do."""
        async with self._making:
            if self._context is None:
                try:
                    self._context = await trio.to_thread.run_sync(_make)
                except (ImportError, OSError) as error:
                    log.error(
                        "a TLS client cannot be served, for no certificate can be made here (%s): set"
                        " tls.server.certPath; `rocketlet tls make-certs` makes some",
                        error,
                    )
                    return None
                log.info(
                    "TLS is served with a certificate made by ourselves, which no client can check;"
                    " tls.server.certPath names another, and `rocketlet tls make-certs` makes some"
                )
            return self._context


def _make() -> ssl.SSLContext:
    from rocketlet.remoting.certificates import own_context

    return own_context()
