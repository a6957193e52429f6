"""A process that runs one server: it starts, reports so on stdout, and serves until SIGTERM or SIGINT.

It exits with 0 when stopped, after answering the requests in progress, and with 1 if it could not start or failed; then
a line on stderr says what to do. A second signal ends it at once.

Java: namesrv/NamesrvStartup.java, broker/BrokerStartup.java
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rocketlet.common.errors import RocketletError, leaves
from rocketlet.remoting.config import ServerConfig

if TYPE_CHECKING:
    import trio

    from rocketlet.remoting.transport import TcpNetwork

EXIT_FAILED = 1
# Allocations between two collections of young objects; requests leave no cyclic garbage.
GC_THRESHOLDS = (50_000, 20, 100)

Start = Callable[["trio.Nursery"], Awaitable[str]]
"""Starts a server in the nursery, and returns the line that says so once it serves."""


def run(program: str, start: Start) -> int:
    """Serve until stopped; returns the exit code."""
    import trio  # 70 ms that -h and -p save

    code = 0
    try:
        trio.run(_serve, start)
    except* (RocketletError, OSError) as group:
        code = EXIT_FAILED
        for error in leaves(group):
            sys.stderr.write(f"{program}: {error}\n")
    return code


async def _serve(start: Start) -> None:
    import trio

    gc.set_threshold(*GC_THRESHOLDS)  # a recovery too allocates much and leaves no cycles
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        line = await start(nursery)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        # What a start allocates lives as long as the process, and need not be scanned repeatedly.
        gc.collect()
        gc.freeze()


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    """Once: after the first signal the default handling applies again."""
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(aiter(signals))
    scope.cancel()


def tcp_network(config: ServerConfig) -> TcpNetwork:
    """The network of this host, with sockets configured by the settings."""
    from rocketlet.remoting.transport import TcpNetwork

    return TcpNetwork(
        backlog=config.server_socket_backlog,
        send_buffer=config.server_socket_snd_buf_size,
        receive_buffer=config.server_socket_rcv_buf_size,
    )
