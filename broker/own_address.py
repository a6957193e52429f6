"""The address at which others reach this host, where none is configured; and the IP of a host's name, where one is.

The kernel knows: it is the one from which it would send to the name server, or, where that is on this host, to anywhere
else. Nothing is sent to find out. The host's own name is asked last, for Debian has it stand for 127.0.1.1.

Java: remoting/common/RemotingUtil.java (getLocalAddress), which takes the first that is not loopback
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from rocketlet.remoting.transport import split_address

LOOPBACK = "127.0.0.1"
_ELSEWHERE = ("203.0.113.1", 9)  # reserved for documentation (RFC 5737): no host has it


def own_address(name_servers: Iterable[str]) -> str:
    """An IPv4 address of this host; 127.0.0.1 where it has no other."""
    for place in [*map(split_address, name_servers), _ELSEWHERE]:
        found = _towards(*place)
        if found:
            return found
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def ip_of(host: str) -> str:
    """The IP of a name, or the IP that it is already. Raises OSError."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def _towards(host: str, port: int) -> str:
    """Our side of a connection to there, or nothing where there is no way or it is this host itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return ""
        found: str = probe.getsockname()[0]
    return "" if found.startswith("127.") else found
