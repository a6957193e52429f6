"""Who a request claims to be from, and whether its signature proves it.

A signature covers all fields of the header. They are read as text here, a second time, except for sends with a ROCKETMQ
header as our client writes it: there the signed content is joined from cached runs of bytes, at a fifth of the cost.

Java: acl/plain/PlainAccessValidator.java (parse)
"""

from __future__ import annotations

import hmac

from rocketlet.remoting import header_json, header_rocketmq_typed
from rocketlet.remoting.frame_codec import ext_of
from rocketlet.remoting.header_rocketmq import begin_of_map
from rocketlet.remoting.protocol.access import ACCESS_KEY
from rocketlet.remoting.signing import Secret


class Claim:
    """The claim in a request's header. Raises FrameError if its fields cannot be read."""

    __slots__ = ("_content", "_ext", "_header_type", "_raw", "_signature", "access_key")

    def __init__(self, header_type: int, raw: bytes) -> None:
        self._header_type, self._raw = header_type, raw
        self._ext: dict[str, str] | None = None
        if header_type == 1 and (map_begin := begin_of_map(raw)):
            claim = header_rocketmq_typed.read_claim(raw, map_begin)
            if claim is not None:
                self.access_key, self._signature, self._content = claim
                return
        self._ext = (header_json.decode_ext(raw) if header_type == 0 else None) or ext_of(header_type, raw)
        self.access_key = self._ext.get(ACCESS_KEY) or ""
        """The account; C++ clients without credentials send an empty one."""

    @property
    def ext(self) -> dict[str, str]:
        """All fields."""
        if self._ext is None:
            self._ext = ext_of(self._header_type, self._raw)
        return self._ext

    def is_signed_with(self, secret: Secret, body: bytes | memoryview, version: int) -> bool:
        """Whether the request was signed with this secret."""
        if self._ext is None:
            return hmac.compare_digest(secret.sign(self._content, body), self._signature)
        return secret.signed(self._ext, body, version)
