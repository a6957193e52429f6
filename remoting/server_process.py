"""A process that is one server: it starts, says so on stdout, and serves until SIGTERM or SIGINT.

It ends with 0 when it was stopped, having answered what was asked before, and with 1 where it could not start or broke;
then with a line on stderr that says what to do. A second signal ends it at once.

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
# Allocations between two collections of young objects; a request leaves no garbage in cycles.
GC_THRESHOLDS = (50_000, 20, 100)

Start = Callable[["trio.Nursery"], Awaitable[str]]
"""Starts a server in the nursery, and returns the line that says so once it serves."""


def run(program: str, start: Start) -> int:
    """Serve until stopped; returns the exit code."""
    import trio  # 70 ms that -h and -p do not pay

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

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        line = await start(nursery)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        # What a start leaves behind lives as long as the process, and need not be scanned again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    """Once: after the first signal the system's own way is in force again."""
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(aiter(signals))
    scope.cancel()


def tcp_network(config: ServerConfig) -> TcpNetwork:
    """The network of this host, with sockets as the settings want them."""
    from rocketlet.remoting.transport import TcpNetwork

    return TcpNetwork(
        backlog=config.server_socket_backlog,
        send_buffer=config.server_socket_snd_buf_size,
        receive_buffer=config.server_socket_rcv_buf_size,
    )
