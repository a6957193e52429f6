"""The identity of this client on the wire: `<ip>@<instance>[@<unit>]`, and the unique ids of its messages.

Members of a group are distinguished by client id, so each client gets an instance name of its own unless it is given
one. A broadcasting consumer keeps its offsets under its id: there the instance is DEFAULT, so that a restart finds
them.

Java: client/ClientConfig.java#buildMQClientId, common/message/MessageClientIDSetter.java
"""

from __future__ import annotations

import os
import socket
from random import Random

from rocketlet.common.clock import WallClock
from rocketlet.common.host import pack_host
from rocketlet.common.message_id import UniqueIds

LOOPBACK = "127.0.0.1"


def local_address(remote: str) -> str:
    """The address that this host uses towards another (`host:port`); no packet is sent."""
    host, _, port = remote.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):  # the latter for a name that no name can be, such as a..b
        return LOOPBACK


def client_id(ip: str, instance: str, unit: str, clock: WallClock, random: Random) -> str:
    """The id in heartbeats, locks and member lists. Without an instance, one that no other client of this host has."""
    instance = instance or f"{os.getpid()}#{clock():x}{random.getrandbits(24):06x}"
    return f"{ip}@{instance}@{unit}" if unit else f"{ip}@{instance}"


def unique_ids(ip: str, clock: WallClock, random: Random) -> UniqueIds:
    """Generates the ids of this client's messages."""
    return UniqueIds(pack_host(ip, 0)[:-4], os.getpid(), random.getrandbits(32), clock)
