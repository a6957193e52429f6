"""mqnamesrv: `python -m rocketlet.namesrv [-c FILE] [-p | -m] [--SETTING VALUE]...`

Exit codes: `remoting/server_process.py`. Wrong arguments or settings exit with 2, and a line on stderr says what to do.

Java: namesrv/NamesrvStartup.java, bin/mqnamesrv
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlet.access.config import AccessConfig
from rocketlet.common import command_line
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.advertised import is_loopback
from rocketlet.namesrv.config import NamesrvConfig, with_config_store_path
from rocketlet.remoting import server_process
from rocketlet.remoting.config import ServerConfig

if TYPE_CHECKING:
    import trio

    from rocketlet.common.config_file import Loaded

PROGRAM = "mqnamesrv"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process."""
    loaded = command_line.read(
        PROGRAM,
        "The name server: tells clients which broker serves which topic.",
        [NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig],
        arguments=arguments,
        environment=os.environ,
    )
    loaded = with_config_store_path(loaded)
    sys.exit(server_process.run(PROGRAM, lambda nursery: _start(nursery, loaded)))


async def _start(nursery: trio.Nursery, loaded: Loaded) -> str:
    from rocketlet.namesrv.namesrv import NameServer

    server = NameServer(loaded, server_process.tcp_network(loaded[ServerConfig]))
    address: str = await nursery.start(server.run)
    return start_up_line(address)


def start_up_line(address: str) -> str:
    """The line printed once the name server has started. Scripts look for RocketMQ's `boot success`."""
    if is_loopback(address):
        reach = "for this host only; bindAddress=0.0.0.0 opens it to others"
    else:
        reach = "for every host that reaches it"
    return f"name server boot success, listening on {address}, {reach}"


if __name__ == "__main__":
    main()
