"""The address at which others reach this host, if none is configured; and the IP of a configured host name.

The kernel knows: it is the source address for the name server or, if that is on this host, for any other host. Nothing
is sent to find out. The host's own name is resolved last, because Debian maps it to 127.0.1.1.

Java: remoting/common/RemotingUtil.java (getLocalAddress), which takes the first that is not loopback
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterable

from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.identity import Identity
from rocketlet.remoting.transport import join_address, split_address

log = logging.getLogger("rocketlet.broker.own_address")

LOOPBACK = "127.0.0.1"
_EVERY_INTERFACE = ("0.0.0.0", "::")
_ELSEWHERE = ("203.0.113.1", 9)  # reserved for documentation (RFC 5737): no host has it


def settle_addresses(identity: Identity, config: BrokerConfig, bound: str) -> None:
    """Give a broker its addresses, now that its port is bound."""
    host, port = split_address(bound)
    loopback = ""
    if config.broker_ip1:
        advertised = config.broker_ip1
        if config.advertises_unreachable_address:
            log.warning("clients are told %s, but bindAddress=%s admits only this host", advertised, host)
    elif config.bind_address in _EVERY_INTERFACE:
        advertised, loopback = own_address(config.namesrv_addr), join_address(LOOPBACK, port)
    else:
        advertised = host
    try:
        ip = ip_of(advertised)
    except OSError as error:
        ip = LOOPBACK
        log.warning("brokerIP1 is %s, which is no address known here (%s): records bear %s", advertised, error, ip)
    identity.settle(join_address(advertised, port), loopback, join_address(ip, port))


def host_name() -> str:
    """The default name of a broker: the host's, with characters replaced that topic names may not have."""
    return re.sub(r"[^%|a-zA-Z0-9_-]", "-", socket.gethostname()) or "broker"


def own_address(name_servers: Iterable[str]) -> str:
    """An IPv4 address of this host; 127.0.0.1 if it has no other."""
    for place in [*map(split_address, name_servers), _ELSEWHERE]:
        address = _local_address_towards(*place)
        if address:
            return address
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def ip_of(host: str) -> str:
    """The IP of a name, or the IP that it is already. Raises OSError."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def _local_address_towards(host: str, port: int) -> str:
    """Our source address for a destination; empty if there is no route or it is this host itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
    return "" if address.startswith("127.") else address
