"""Signatures of requests: an account's name and an HMAC-SHA1 over all header fields and the body.

    Signature = base64(hmac-sha1(secret, values of the fields in the order of their names, then the body))

The values are concatenated without their names, and neither the request code nor the other parts of the header are
among them. So a signature shows that its sender knows the secret, and protects the values; it does not prevent someone
who reads the wire from replaying the request. TLS does.

`Signer` signs outgoing requests; `Secret` verifies signatures for servers.

Java: acl/common/AclClientRPCHook.java, AclSigner.java, AclUtils.java
"""

from __future__ import annotations

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from operator import itemgetter

from rocketlet.remoting.command import V4_9_3, Command
from rocketlet.remoting.protocol.access import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
ZONE_PREFIX = "__ZONE_"

_BLOCK = 64  # bytes of SHA-1's block, to which HMAC pads its key
# A client writes the fields of each kind of request in one order; a hostile peer may use any.
_CACHED_ORDERS = 256
_LONGEST_ORDER = 1_000  # characters of the names of one


class Secret:
    """The secret of an account, ready to sign: HMAC's two keyed hashes are started once, and copied for each
    request."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        if len(secret) > _BLOCK:
            secret = hashlib.sha1(secret).digest()
        key = secret.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key))

    def __repr__(self) -> str:
        return "<Secret>"

    def sign(self, content: bytes, body: bytes | memoryview = b"") -> bytes:
        """The signature's text."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        if body:
            inner.update(body)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)

    def signed(self, ext: Mapping[str, str], body: bytes | memoryview, version: int) -> bool:
        """Whether the request with these fields, whose signature is one of them, was signed with this secret.

        Two fields are not signed by all clients that send them: clients up to 4.9.3 do not sign the mark of a query for
        a unique key, and those of 5.x add the name of a zone after signing.
        """
        claimed = ext.get(SIGNATURE, "").encode("utf-8", "replace")
        if UNIQUE_KEY_QUERY in ext and version <= V4_9_3:
            return self._signed(ext, (UNIQUE_KEY_QUERY,), body, claimed)
        if hmac.compare_digest(self.sign(content_of(ext), body), claimed):
            return True
        unsigned = tuple(name for name in ext if name == UNIQUE_KEY_QUERY or name.startswith(ZONE_PREFIX))
        return bool(unsigned) and self._signed(ext, unsigned, body, claimed)

    def _signed(
        self, ext: Mapping[str, str], left_out: tuple[str, ...], body: bytes | memoryview, claimed: bytes
    ) -> bool:
        ext = {name: value for name, value in ext.items() if name not in left_out}
        return hmac.compare_digest(self.sign(content_of(ext), body), claimed)


def content_of(ext: Mapping[str, str]) -> bytes:
    """The signed content of the fields."""
    names = tuple(ext)
    take = _orders.get(names)
    joined = "".join(take(ext) if take is not None else _values(names, ext))
    try:
        return joined.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return joined.encode("utf-8", "surrogatepass")


_orders: dict[tuple[str, ...], Callable[[Mapping[str, str]], tuple[str, ...]]] = {}


def _values(names: tuple[str, ...], ext: Mapping[str, str]) -> tuple[str, ...]:
    """The values in the order of their names, without the signature. Sorting every time would cost 0.5 µs more."""
    order = sorted(name for name in names if name != SIGNATURE)
    if len(order) < 2:  # itemgetter of one name returns no tuple
        return tuple(ext[name] for name in order)
    take: Callable[[Mapping[str, str]], tuple[str, ...]] = itemgetter(*order)
    if sum(map(len, names)) <= _LONGEST_ORDER:
        if len(_orders) >= _CACHED_ORDERS:
            _orders.clear()
        _orders[names] = take
    return take(ext)


class Signer:
    """A hook for the connections of one account."""

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        self._access_key = access_key
        self._secret = Secret(secret_key.encode())
        self._security_token = security_token

    def __repr__(self) -> str:
        return f"<Signer {self._access_key}>"

    def before(self, address: str, command: Command) -> None:
        """Add the fields. The signature is computed last, so that no field is added after it."""
        ext = dict(command.ext or {})
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = self._access_key
        if self._security_token:
            ext[SECURITY_TOKEN] = self._security_token
        ext[SIGNATURE] = self._secret.sign(content_of(ext), command.body).decode()
        command.ext = ext

    def after(self, address: str, command: Command, answer: Command) -> None:
        """Answers are not signed."""
