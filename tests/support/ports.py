"""Ports for servers that need a fixed port, or that restart on the same one.

They are below the ephemeral range. A port of that range, free when it was chosen, may belong to any connection by the
time the server binds it.

A server that reports its port gets 0 instead and needs none of these.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing
from random import Random

_RANGE = range(12_000, 32_000)
_MAX_GIVEN = len(_RANGE) // 4
_chance = Random(os.getpid())  # concurrent tests look in different places
_given: dict[int, None] = {}  # the latest: their servers may not have bound them yet


def free_port(*neighbours: int) -> int:
    """A port that is free on the loopback interface, together with those at these distances from it."""
    while True:
        port = _chance.choice(_RANGE)
        wanted = [port + distance for distance in (0, *neighbours)]
        if not _given.keys().isdisjoint(wanted):
            continue
        with ExitStack() as held:
            try:
                for one in wanted:
                    held.enter_context(closing(socket.socket())).bind(("127.0.0.1", one))
            except OSError:
                continue
        _given.update(dict.fromkeys(wanted))
        while len(_given) > _MAX_GIVEN:
            del _given[next(iter(_given))]
        return port


def free_ports(count: int) -> list[int]:
    """That many different ones."""
    return [free_port() for _ in range(count)]


def free_broker_port() -> int:
    """A port that is free together with its VIP port (two below) and the one of replication (one above)."""
    return free_port(-2, 1)
