"""mqbroker: `python -m rocketlet.broker [-c FILE] [-n NAME-SERVERS] [-p | -m] [--SETTING VALUE]...`

SIGTERM or SIGINT stop it in order, and it ends with 0; a second one stops it at once. It ends with 1 where it could not
start or broke, and 2 where its arguments or settings are wrong; each with a line on stderr that says what to do.

Java: broker/BrokerStartup.java, bin/mqbroker
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlet.broker.config import VIP_STEP, BrokerConfig
from rocketlet.common import command_line
from rocketlet.common.errors import RocketletError, leaves
from rocketlet.metrics.config import MetricsConfig
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import StoreConfig

if TYPE_CHECKING:
    import trio

    from rocketlet.broker.identity import Identity
    from rocketlet.common.config_file import Loaded

PROGRAM = "mqbroker"
EXIT_FAILED = 1
# Young objects are looked at every so many allocations; a send leaves none that lives in a cycle.
GC_THRESHOLDS = (50_000, 20, 100)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process."""
    loaded = command_line.read(
        PROGRAM,
        "The broker: takes messages, keeps them, and hands them out.",
        [BrokerConfig, StoreConfig, ReplicationConfig, ServerConfig, PoolConfig, MetricsConfig],
        arguments=arguments,
        environment=os.environ,
    )
    sys.exit(_served(loaded))


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

    from rocketlet.broker.broker import Broker
    from rocketlet.remoting.transport import TcpNetwork
    from rocketlet.store.disk import RealDisk

    sockets = loaded[ServerConfig]
    network = TcpNetwork(
        backlog=sockets.server_socket_backlog,
        send_buffer=sockets.server_socket_snd_buf_size,
        receive_buffer=sockets.server_socket_rcv_buf_size,
    )
    broker = Broker(loaded, network, RealDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        await nursery.start(broker.run)
        sys.stdout.write(f"{start_up_line(broker.identity, loaded[BrokerConfig])}\n")
        sys.stdout.flush()
        # What a start leaves behind lives as long as the process, and need not be looked at again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    """Once: behind the first signal the system's own way is in force again."""
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(aiter(signals))
    scope.cancel()


def start_up_line(identity: Identity, config: BrokerConfig) -> str:
    """What there is to know of a broker that has just started. Scripts look for RocketMQ's `boot success`."""
    told = f"clients are told {identity.address}"
    if identity.loopback_address:
        told += f", those on this host {identity.loopback_address}"
    vip = f", VIP port {config.listen_port - VIP_STEP}" if config.listen_port else ""
    if config.loopback_only:
        reach = "; for this host only, bindAddress=0.0.0.0 opens it to others"
    elif config.broker_ip1:
        reach = ""
    else:
        reach = "; set brokerIP1 where they reach this host by another address"
    return f"broker boot success, {identity.name} of {identity.cluster}: {told}{vip}{reach}"


if __name__ == "__main__":
    main()
