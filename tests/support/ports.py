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
_MAX_RECENT = len(_RANGE) // 4
_rng = Random(os.getpid())  # concurrent tests look in different places
_recent: dict[int, None] = {}  # the latest: their servers may not have bound them yet


def free_port(*neighbours: int) -> int:
    """A port that is free on the loopback interface, together with those at these distances from it."""
    while True:
        port = _rng.choice(_RANGE)
        ports = [port + distance for distance in (0, *neighbours)]
        if not _recent.keys().isdisjoint(ports):
            continue
        with ExitStack() as stack:
            try:
                for number in ports:
                    stack.enter_context(closing(socket.socket())).bind(("127.0.0.1", number))
            except OSError:
                continue
        _recent.update(dict.fromkeys(ports))
        while len(_recent) > _MAX_RECENT:
            del _recent[next(iter(_recent))]
        return port


def free_ports(count: int) -> list[int]:
    """That many different ones."""
    return [free_port() for _ in range(count)]


def free_broker_port() -> int:
    """A port that is free together with its VIP port (two below) and the one of replication (one above)."""
    return free_port(-2, 1)
