"""Which connections a port that feeds the log accepts: from addresses in `haAllowed`, while there is room.

Java: store/ha/HAService.java (AcceptSocketService)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from ipaddress import ip_address, ip_network

import trio

from rocketlet.remoting.accepting import accepted
from rocketlet.remoting.transport import ByteStream, Network, split_address

MAX_CONNECTIONS = 64

Allowed = Callable[[], tuple[str, ...]]


async def admit(
    network: Network,
    host: str,
    port: int,
    allowed: Allowed,
    has_room: Callable[[], bool],
    take: Callable[[ByteStream, trio.Nursery], None],
    log: logging.Logger,
    task_status: trio.TaskStatus[str],
) -> None:
    """Listen, and call `take` for every connection that is accepted, until cancelled. Starts with the bound address.

    `take` starts a task that serves it. Raises ListenFailed.
    """
    async with aclosing(await network.listen(host, port)) as listener, trio.open_nursery() as nursery:
        task_status.started(listener.address)
        while True:
            stream = await accepted(listener, log)
            if not is_allowed(split_address(stream.peer)[0], networks := allowed()):
                log.warning("%s is not among haAllowed=%s: not served", stream.peer, ";".join(networks))
            elif not has_room():
                log.warning("%s is not served: %d are connected already", stream.peer, MAX_CONNECTIONS)
            else:
                take(stream, nursery)
                continue
            await stream.aclose()


def is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether an address is in one of the networks; an empty list admits everybody."""
    if not allowed:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in ip_network(text, strict=False) for text in allowed)
