"""Limits the frames without payload that a peer may send: a token bucket, filled by time and by completed work.

Floods of PING, SETTINGS, RST_STREAM (CVE-2023-44487), WINDOW_UPDATE, PRIORITY and empty DATA frames all make a server
work for nothing. One bucket covers them, each kind at its own cost. An honest client's control frames come with its
calls, and answered calls refill the bucket, so its rate does not matter; gRPC's own libraries send a PING with nearly
every message they receive.

Java: (none; io.netty.handler.codec.http2.Http2MaxRstFrameDecoder and its kin have a limit for each kind)
"""

from __future__ import annotations

TOKENS = 2000.0
A_SECOND = 100.0

CONTROL = 1.0
SETTINGS = 20.0  # each is answered, and may touch all streams
RESET = 10.0
REFUSED = 10.0  # a stream above the limit: its headers were decoded for nothing
TINY_DATA = 1.0
ANSWERED = 20.0  # returned when a call ends normally
SENT_DATA = 2.0  # and for each DATA frame of some size that the peer accepts


class Patience:
    """The bucket of one connection."""

    __slots__ = ("_tokens", "_updated_at")

    def __init__(self, now: float) -> None:
        self._tokens = TOKENS
        self._updated_at = now

    def spend(self, cost: float, now: float) -> bool:
        """Take tokens. False if the bucket is empty."""
        self._tokens = min(TOKENS, self._tokens + (now - self._updated_at) * A_SECOND) - cost
        self._updated_at = now
        return self._tokens >= 0

    def earn(self, gain: float) -> None:
        """Return tokens for useful work."""
        self._tokens = min(TOKENS, self._tokens + gain)
