"""A remoting server on a network in memory, for tests of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.handler import Handler
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.server import Server
from tests.support.raw_client import RawClient

HASTY = ServerConfig(server_drain_seconds=0.0)
"""Stops at once, also with parked requests, so that a test's end costs nothing."""


class Serving:
    """A running server, and raw clients of it."""

    def __init__(self, network: MemoryNetwork, server: Server, address: str) -> None:
        self.network = network
        self.server = server
        self.address = address

    async def client(self) -> RawClient:
        return RawClient(await self.network.dial(self.address))


async def serving(
    nursery: trio.Nursery,
    handlers: Mapping[int, Handler],
    config: ServerConfig = HASTY,
    *,
    network: MemoryNetwork | None = None,
    **more: Any,
) -> Serving:
    """Start a server that runs until the nursery ends. `more` goes to the Server."""
    network = network or MemoryNetwork()
    server = Server(handlers, network, config, **more)
    address = await nursery.start(server.serve, "10.0.0.5", 0)
    return Serving(network, server, address)
