"""The certificate of the port: the one of the settings, else one of our own, made at start and kept in memory.

Official Java and Go clients speak TLS unless they are told otherwise, and take any certificate. So there has to be one;
where a certificate matters, the settings name it. Ours is good for this process alone: nobody can check it, and it
protects from nobody who can change what is on the wire.

Java: proxy/grpc/ProxyAndTlsProtocolNegotiator.java (loadSslContext), remoting/netty/TlsHelper.java
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile

import trio

from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.tls import TlsContexts, server_contexts

log = logging.getLogger("rocketlet.proxy.certificate")

_VALID_DAYS = 36500
ALPN = ["h2"]


class Contexts:
    """What handshakes use. Raises SettingsError where the settings name a certificate that cannot be loaded.

    Ours is made at the first handshake, in a thread: it takes a tenth of a second and 10 MB, which a process that
    nobody speaks TLS to does not pay.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._given: TlsContexts | None = server_contexts(config)
        self._own: ssl.SSLContext | None = None
        self._making = trio.Lock()

    async def current(self) -> ssl.SSLContext:
        """For a handshake that begins now."""
        if self._given is not None:
            context = self._given.current()
            context.set_alpn_protocols(ALPN)
            return context
        async with self._making:
            if self._own is None:
                self._own = await trio.to_thread.run_sync(own_context)
                log.info("TLS is served with a certificate made by ourselves; tls.server.certPath names another")
            return self._own


def own_context() -> ssl.SSLContext:
    """A context with a certificate signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rocketlet")])
    began = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads keys from files only; this one is gone before anybody is served.
    handle, path = tempfile.mkstemp(prefix="rocketlet-", suffix=".pem")
    try:
        os.write(handle, key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ) + certificate.public_bytes(serialization.Encoding.PEM))  # fmt: skip
        context.load_cert_chain(path)
    finally:
        os.close(handle)
        os.unlink(path)
    context.set_alpn_protocols(ALPN)
    return context
