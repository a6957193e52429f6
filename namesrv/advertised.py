"""Which address a client gets when a broker has two.

A broker whose address is not configured (no `brokerIP1`) registers the address of its host, and beside it the one it
has on loopback (`loopbackAddr`). A client that asks through loopback runs on the name server's host; if the broker does
too, the loopback address is the one that always works, whatever the host's network is: a VPN, several interfaces, none
at all. All others get the registered address. RocketMQ's brokers, and ours with `brokerIP1`, register no second
address; everybody gets the registered one.

Pure. Addresses are `host:port`, an IPv6 host in brackets.

Java: none; RocketMQ gives all clients the same address.
"""

from __future__ import annotations


def is_loopback(address: str) -> bool:
    """Whether this address is a loopback address: 127.0.0.0/8, ::1, or the former mapped into IPv6."""
    return address.startswith(("127.", "[::1]:", "[::ffff:127.", "localhost:"))


def shares_host(local: str, peer: str) -> bool:
    """Whether the two ends of a connection are one host: over loopback, or from an address to itself."""
    return is_loopback(peer) or _host(local) == _host(peer)


def second_address(offered: str | None, local: str, peer: str) -> str | None:
    """The address a broker offers for its own host, if it may offer one: `local` and `peer` are the ends of its
    connection."""
    return offered if offered and is_loopback(offered) and shares_host(local, peer) else None


def _host(address: str) -> str:
    return address.rpartition(":")[0]
