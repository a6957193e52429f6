"""Signs requests for brokers with access control: adds the account and an HMAC over all header fields and the body.

The signature covers the values of all fields in the order of their names, then the body. It is made last, so that no
field is added after it.

Java: acl/common/AclClientRPCHook.java, AclSigner.java
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from rocketlet.remoting.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


class Signer:
    """A hook for the connections of one account."""

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        self._access_key = access_key
        self._secret = secret_key.encode()
        self._security_token = security_token

    def before(self, address: str, command: Command) -> None:
        """Adds the fields."""
        ext = dict(command.ext or {})
        ext[ACCESS_KEY] = self._access_key
        if self._security_token:
            ext[SECURITY_TOKEN] = self._security_token
        ext[SIGNATURE] = signature(ext, bytes(command.body), self._secret)
        command.ext = ext

    def after(self, address: str, command: Command, answer: Command) -> None:
        """Answers are not signed."""


def signature(ext: dict[str, str], body: bytes, secret: bytes) -> str:
    """Base64 of the HMAC-SHA1 over the fields (but for the signature itself) and the body."""
    # Names are ASCII, so Python's order is Java's.
    content = "".join(ext[name] for name in sorted(ext) if name != SIGNATURE).encode() + body
    return base64.b64encode(hmac.new(secret, content, hashlib.sha1).digest()).decode()
