"""mqnamesrv: `python -m rocketlet.namesrv [-c FILE] [-p | -m] [--SETTING VALUE]...`

Ends with 0 after SIGTERM or SIGINT, having answered what was asked before; with 1 where it could not start or broke,
and 2 where its arguments or settings are wrong; each with a line on stderr that says what to do.

Java: namesrv/NamesrvStartup.java, bin/mqnamesrv
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlet.common import command_line
from rocketlet.common.errors import RocketletError, leaves
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.advertised import is_loopback
from rocketlet.namesrv.config import NamesrvConfig, kept_in_its_file
from rocketlet.remoting.config import ServerConfig

if TYPE_CHECKING:
    from rocketlet.common.config_file import Loaded

PROGRAM = "mqnamesrv"
EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process."""
    loaded = command_line.read(
        PROGRAM,
        "The name server: tells clients which broker serves which topic.",
        [NamesrvConfig, ServerConfig, MetricsConfig],
        arguments=arguments,
        environment=os.environ,
    )
    sys.exit(_served(kept_in_its_file(loaded)))


def _served(loaded: Loaded) -> int:
    """Serve until told to stop; the exit code."""
    import trio  # 70 ms that -h and -p do not pay

    code = 0
    try:
        trio.run(_serve, loaded)
    except* (RocketletError, OSError) as group:
        code = EXIT_FAILED
        for error in leaves(group):
            sys.stderr.write(f"{PROGRAM}: {error}\n")
    return code


async def _serve(loaded: Loaded) -> None:
    import trio

    from rocketlet.namesrv.namesrv import NameServer
    from rocketlet.remoting.transport import TcpNetwork

    sockets = loaded[ServerConfig]
    network = TcpNetwork(
        backlog=sockets.server_socket_backlog,
        send_buffer=sockets.server_socket_snd_buf_size,
        receive_buffer=sockets.server_socket_rcv_buf_size,
    )
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(NameServer(loaded, network).run)
            sys.stdout.write(f"{start_up_line(address)}\n")
            sys.stdout.flush()
            gc.freeze()  # what a start leaves behind lives as long as the process
            await anext(aiter(signals))
            nursery.cancel_scope.cancel()


def start_up_line(address: str) -> str:
    """What there is to know of a name server that has just started. Scripts look for RocketMQ's `boot success`."""
    if is_loopback(address):
        reach = "for this host only; bindAddress=0.0.0.0 opens it to others"
    else:
        reach = "for every host that reaches it"
    return f"name server boot success, listening on {address}, {reach}"


if __name__ == "__main__":
    main()
