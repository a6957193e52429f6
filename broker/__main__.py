"""mqbroker: `python -m rocketlet.broker [-c FILE] [-n NAME-SERVERS] [-p | -m] [--SETTING VALUE]...`

Exit codes: `remoting/server_process.py`. Wrong arguments or settings exit with 2, and a line on stderr says what to do.

Java: broker/BrokerStartup.java, bin/mqbroker
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlet.broker.config import VIP_STEP, BrokerConfig, reachable
from rocketlet.broker.configs import BROKER_CONFIGS
from rocketlet.common import command_line
from rocketlet.remoting import server_process
from rocketlet.remoting.config import ServerConfig

if TYPE_CHECKING:
    import trio

    from rocketlet.broker.identity import Identity
    from rocketlet.common.config_file import Loaded

PROGRAM = "mqbroker"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process."""
    loaded = command_line.read(
        PROGRAM,
        "The broker: takes messages, keeps them, and hands them out.",
        BROKER_CONFIGS,
        arguments=arguments,
        environment=os.environ,
        derive=reachable,
    )
    sys.exit(server_process.run(PROGRAM, lambda nursery: _start(nursery, loaded)))


async def _start(nursery: trio.Nursery, loaded: Loaded) -> str:
    from rocketlet.broker.broker import Broker
    from rocketlet.broker.lives import run_restarting
    from rocketlet.store.real_disk import RealDisk

    network, disk, lives = server_process.tcp_network(loaded[ServerConfig]), RealDisk(), list[Broker]()

    def make(bound: str) -> Broker:
        lives[:] = [Broker(loaded, network, disk, bound=bound)]
        return lives[0]

    await nursery.start(run_restarting, make)
    return start_up_line(lives[0].identity, loaded[BrokerConfig])


def start_up_line(identity: Identity, config: BrokerConfig) -> str:
    """The line printed once the broker has started. Scripts look for RocketMQ's `boot success`."""
    addresses = f"clients are told {identity.address}"
    if identity.loopback_address:
        addresses += f", those on this host {identity.loopback_address}"
    vip = f", VIP port {config.listen_port - VIP_STEP}" if config.listen_port else ""
    if config.loopback_only:
        reach = "; for this host only, bindAddress=0.0.0.0 opens it to others"
    elif config.broker_ip1:
        reach = ""
    else:
        reach = "; set brokerIP1 where they reach this host by another address"
    return f"broker boot success, {identity.name} of {identity.cluster}: {addresses}{vip}{reach}"


if __name__ == "__main__":
    main()
