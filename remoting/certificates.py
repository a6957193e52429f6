"""Certificates that we create: one for a server that has none, and a small authority for getting started with TLS.

`cryptography` is imported only here, at the first use: it takes 60 ms and 10 MB.

Java: remoting/netty/TlsHelper.java (SelfSignedCertificate)
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_BEGAN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_OWN_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key (PKCS 8, as Java requires), as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates; created for one run, so its key need not be stored."""

    def __init__(self, name: str, days: int, now: datetime.datetime) -> None:
        self._not_after = now + datetime.timedelta(days=days)
        self._from = now - datetime.timedelta(days=1)  # for hosts whose clock is behind
        self._key = _new_key()
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key, self._from, self._not_after)
        self._certificate = _signed(_as_authority(builder, self._key), self._key)

    @property
    def certificate(self) -> bytes:
        """The certificate that both sides trust, as PEM."""
        return _pem(self._certificate)

    @property
    def key(self) -> bytes:
        """The private key, for signing more certificates, as PEM."""
        return _key_pem(self._key)

    def issue(self, name: str, hosts: Sequence[str], *, server: bool) -> Issued:
        """Issue a certificate for a server with these names and addresses, or for a client of that name."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_named(name), self._name, key, self._from, self._not_after)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(_alternative_names(hosts), critical=False)
        return Issued(_pem(_signed(builder, self._key)), _key_pem(key))


def own_context() -> ssl.SSLContext:
    """A server's context with a certificate signed by itself, kept in memory. 0.1 s.

    It is valid for this process only: nobody can verify it, and it does not protect against an active attacker.
    It names this host all the same, because RocketMQ's C++ client checks that and nothing else.
    """
    key, name = _new_key(), _named("rocketlet")
    not_after = _BEGAN + datetime.timedelta(days=_OWN_DAYS)
    builder = _builder(name, name, key, _BEGAN, not_after).add_extension(
        _alternative_names(_names_here()), critical=False
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads keys only from files; this one is deleted before anybody is served.
    with tempfile.NamedTemporaryFile(prefix="rocketlet-", suffix=".pem") as file:
        file.write(_key_pem(key) + _pem(_signed(builder, key)))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _names_here() -> list[str]:
    """What clients may call this host: its name, and its addresses as far as the name tells them."""
    names = ["localhost", "127.0.0.1", "::1"]
    host = socket.gethostname()
    if host.isascii() and host:
        names.append(host)
        try:
            names += [str(place[0]) for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        except OSError:
            pass  # the name stands for nothing here
    return [name for name in dict.fromkeys(names) if "%" not in name]


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    begin: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _as_authority(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509

    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
