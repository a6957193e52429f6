"""Which address of this host others reach it at, where nobody has said.

The kernel knows: it is the one from which it would send to the name server. Nothing is sent to find out. Without a name
server, the address that the host's own name stands for.

Java: remoting/common/RemotingUtil.java (getLocalAddress), which takes the first that is not loopback
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from remoting.transport import split_address

LOOPBACK = "127.0.0.1"


def own_address(name_servers: Iterable[str]) -> str:
    """An IPv4 address of this host; 127.0.0.1 where it has no other."""
    for address in name_servers:
        found = _towards(*split_address(address))
        if found:
            return found
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def _towards(host: str, port: int) -> str:
    """Our side of a connection to there, or nothing where there is no way or it is this host itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return ""
        found: str = probe.getsockname()[0]
    return "" if found.startswith("127.") else found
