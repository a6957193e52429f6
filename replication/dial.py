"""Connecting to a master's port for slaves, with TLS if `haUseTLS` is set.

Java: store/ha/HAService.java (connectMaster), which has no TLS
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.transport import ByteStream, Network

Dial = Callable[[str], Awaitable[ByteStream]]


def dial_of(network: Network, config: PoolConfig, *, use_tls: bool) -> Dial:
    """How to connect. Raises SettingsError if certificates cannot be loaded."""
    if not use_tls:
        return network.dial
    from rocketlet.remoting.tls import client_contexts, secured  # ssl takes 20 ms to import

    contexts = client_contexts(replace(config, use_tls=True))
    assert contexts is not None

    async def dial(address: str) -> ByteStream:
        stream = await network.dial(address)
        name = config.tls_server_name or None
        return await secured(stream, contexts.current(), server_side=False, server_name=name)

    return dial
