"""What can go wrong between two processes, by whose fault it is.

    RemotingError
      ListenFailed      ours: the port cannot be bound
      ConnectFailed     nothing listens there, or not in time
      ConnectionLost    the connection ended during a call; the peer may still have carried it out
      CallTimeout       no answer in time; the peer may still have carried it out
      TooManyRequests   ours: more requests are in flight than a named setting allows; nothing was sent
      FrameError        the peer's: bytes that are not a frame; ends their connection
      HeaderError       the peer's: a field of a request is missing or unreadable; answered with code 1
      BodyError         the peer's: a body is not what its code requires; answered with code 1
      ChecksumError     the network's: a body arrived changed (only msgpack has a checksum); ends the connection

An answer with an error code is not an error here: it is an answer, and its caller knows what the code means.

Java: remoting/exception/RemotingException.java and its kin
"""

from __future__ import annotations

from rocketlet.common.errors import RocketletError


class RemotingError(RocketletError):
    """Root of what remoting raises. Not raised for an answer with an error code."""


class ListenFailed(RemotingError):
    """A port cannot be bound: taken, forbidden, or not an address of this host."""


class ConnectFailed(RemotingError):
    """No connection could be made: refused, unreachable, no such host, TLS refused, or not in time."""


class ConnectionLost(RemotingError):
    """The connection ended. Whether the peer saw the request is unknown: repeat only what may happen twice."""


class CallTimeout(RemotingError):
    """No answer in time. The connection stays open; a late answer is dropped with a log line."""


class TooManyRequests(RemotingError):
    """More requests are in flight than the named setting allows. Nothing was sent: slow down, or raise it."""


class FrameError(RemotingError):
    """Bytes that are not a frame: a length over the limit, lengths that contradict each other, an unreadable header."""


class ChecksumError(FrameError):
    """A body that differs from the one sent, by the CRC-32C in its header."""


class HeaderError(RemotingError):
    """A field of a custom header is missing, or not the number it has to be."""


class BodyError(RemotingError):
    """A body is not JSON, or not of the shape its code requires."""
