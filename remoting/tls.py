"""TLS on the port of plain connections: detected by the first byte, without any other negotiation.

A ClientHello begins with 22; a plain frame with 0, because no frame is as long as 16 MiB. TLS 1.2 stays enabled,
because Java 8 clients know nothing newer.

Certificates are reloaded as soon as one of their files has changed, which is checked at each handshake in 5 µs. A
replacement that cannot be loaded (half written, key of another certificate) leaves the old one in use, with a log line,
and is retried at the next handshake. Connections keep the certificate they began with.

A server without a certificate that also serves plain clients creates one: `own_context.py`.

Java: remoting/netty/TlsHelper.java, TlsSystemConfig.java, NettyRemotingServer.java (HandshakeHandler)
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

import trio

from rocketlet.common.settings import SettingsError
from rocketlet.remoting.config import ClientAuth, PoolConfig, ServerConfig
from rocketlet.remoting.frame_codec import Buffer
from rocketlet.remoting.transport import ByteStream

log = logging.getLogger("rocketlet.remoting.tls")

HANDSHAKE_SECONDS = 10.0  # RocketMQ has none; a peer that never finishes would hold its descriptor forever
_CLOSE_SECONDS = 1.0


class TlsContexts:
    """The context for the next handshake, recreated when a file has changed."""

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Sequence[str]) -> None:
        """Raises SettingsError if the files cannot be loaded at start."""
        self._make = make
        self._paths = [path for path in paths if path]
        self._file_states = self._stat_files()
        self._current = self._load()

    async def ready(self) -> ssl.SSLContext:
        """The same, for callers that may wait: see OwnContext."""
        return self.current()

    def current(self) -> ssl.SSLContext:
        """The context for a handshake that begins now."""
        file_states = self._stat_files()
        if file_states != self._file_states:
            try:
                self._current = self._load()
                self._file_states = file_states
                log.info("TLS certificates read again: %s", ", ".join(self._paths))
            except SettingsError as error:
                log.warning("the new TLS certificates are not used, the old ones stay: %s", error)
        return self._current

    def _load(self) -> ssl.SSLContext:
        try:
            return self._make()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; none of them names the file
            files = ", ".join(self._paths)
            raise SettingsError(f"the TLS certificates or keys cannot be loaded: {error}; they are {files}") from error

    def _stat_files(self) -> list[tuple[int, int, int] | None]:
        return [_stat(path) for path in self._paths]


def server_contexts(config: ServerConfig) -> TlsContexts | None:
    """None without a certificate."""
    if not config.tls_cert_path:
        return None

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            config.tls_cert_path, config.tls_key_path or None, password=lambda: config.tls_key_password
        )
        if config.tls_trust_path:
            context.load_verify_locations(config.tls_trust_path)
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[config.tls_client_auth]
        return context

    return TlsContexts(make, (config.tls_cert_path, config.tls_key_path, config.tls_trust_path))


def client_contexts(config: PoolConfig) -> TlsContexts | None:
    """None if connections are plain."""
    if not config.use_tls:
        return None

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = bool(config.tls_server_name) and config.tls_auth_server
        context.verify_mode = ssl.CERT_REQUIRED if config.tls_auth_server else ssl.CERT_NONE
        if config.tls_trust_path:
            context.load_verify_locations(config.tls_trust_path)
        elif config.tls_auth_server:
            context.load_default_certs()
        if config.tls_cert_path:
            context.load_cert_chain(
                config.tls_cert_path, config.tls_key_path or None, password=lambda: config.tls_key_password
            )
        return context

    return TlsContexts(make, (config.tls_trust_path, config.tls_cert_path, config.tls_key_path))


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None  # between the removal of the old file and the arrival of the new one
    return status.st_mtime_ns, status.st_size, status.st_ino


async def secured(
    stream: ByteStream, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None
) -> ByteStream:
    """The stream inside TLS, after the handshake. Raises trio.BrokenResourceError; the stream is closed then."""
    encrypted = trio.SSLStream(
        cast(trio.abc.Stream, stream),
        context,
        server_side=server_side,
        server_hostname=server_name,
        https_compatible=True,
    )
    try:
        with trio.fail_after(HANDSHAKE_SECONDS):
            await encrypted.do_handshake()
    except trio.TooSlowError:
        await trio.aclose_forcefully(encrypted)
        raise trio.BrokenResourceError(f"no TLS handshake within {HANDSHAKE_SECONDS:g} s") from None
    except BaseException:
        await trio.aclose_forcefully(encrypted)
        raise
    return TlsStream(encrypted, stream)


class TlsStream:
    """See ByteStream. Nothing is sent without waiting here: encryption needs the stream in order."""

    def __init__(self, inside: trio.SSLStream[trio.abc.Stream], outside: ByteStream) -> None:
        self._inside = inside
        self.local = outside.local
        self.peer = outside.peer
        self.certified_names = _names_in(inside.getpeercert())
        """Of a peer whose certificate is signed by one that we trust: its common name, and its DNS names."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ByteStream."""
        return bytes(await self._inside.receive_some(max_bytes))

    def send_now(self, data: Buffer) -> int:
        """See ByteStream."""
        return 0

    async def send_all(self, data: Buffer) -> None:
        """See ByteStream."""
        await self._inside.send_all(data)

    async def aclose(self) -> None:
        """See ByteStream. Sends close_notify if there is room for it."""
        with trio.move_on_after(_CLOSE_SECONDS):
            await self._inside.aclose()


def _names_in(certificate: Any) -> tuple[str, ...]:
    """The names in a verified certificate: for others `getpeercert` returns nothing."""
    if not certificate:
        return ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(common + [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"])


class PrefixedStream:
    """A stream of which some bytes have already been read."""

    def __init__(self, stream: ByteStream, first: bytes) -> None:
        self._stream = stream
        self._first = first
        self.local = stream.local
        self.peer = stream.peer

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ByteStream."""
        if self._first:
            first = self._first[: max_bytes or len(self._first)]
            self._first = self._first[len(first) :]
            await trio.lowlevel.checkpoint()
            return first
        return await self._stream.receive_some(max_bytes)

    def send_now(self, data: Buffer) -> int:
        """See ByteStream."""
        return self._stream.send_now(data)

    async def send_all(self, data: Buffer) -> None:
        """See ByteStream."""
        await self._stream.send_all(data)

    async def aclose(self) -> None:
        """See ByteStream."""
        await self._stream.aclose()
