"""Ports for servers that are told theirs beforehand, or that come back where they were.

They lie below the range from which systems choose by themselves. A port of that range, free when it was looked for, may
belong to any connection by the time the server binds it.

A server that can be asked for its port gets 0 instead and needs none of these.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing
from random import Random

_RANGE = range(12_000, 32_000)
_chance = Random(os.getpid())  # tests that run beside each other look in different places


def free_port(*neighbours: int) -> int:
    """A port that is free on the loopback interface, together with those at these distances from it."""
    while True:
        port = _chance.choice(_RANGE)
        with ExitStack() as held:
            try:
                for distance in (0, *neighbours):
                    probe = held.enter_context(closing(socket.socket()))
                    probe.bind(("127.0.0.1", port + distance))
            except OSError:
                continue
            return port


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


def free_broker_port() -> int:
    """A port that is free together with its VIP port (two below) and the one of replication (one above)."""
    return free_port(-2, 1)
