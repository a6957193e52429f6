"""`mqbroker`: the broker as a process. SIGTERM and SIGINT stop it in order; a second one stops it at once.

Java: broker/BrokerStartup.java, bin/mqbroker
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys

import trio

from broker.broker import Broker
from broker.config import BrokerConfig
from common import command_line
from common.config_file import Loaded
from common.errors import RocketletError, leaves
from remoting.config import PoolConfig, ServerConfig
from remoting.transport import TcpNetwork
from store.config import StoreConfig
from store.disk import RealDisk

log = logging.getLogger("broker.__main__")

EXIT_FAILED = 1


def main() -> None:
    loaded = command_line.read(
        "mqbroker", "The broker.", [BrokerConfig, StoreConfig, ServerConfig, PoolConfig], environment=os.environ
    )
    try:
        trio.run(serve, loaded)
    except* (RocketletError, OSError) as group:
        for error in leaves(group):
            log.critical("%s", error)
        sys.exit(EXIT_FAILED)


async def serve(loaded: Loaded) -> None:
    broker = Broker(loaded, TcpNetwork(), RealDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, nursery.cancel_scope)
        await nursery.start(broker.run)
        # What lives now lives as long as the process: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)


async def _stop_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("%s: stopping", signal.Signals(number).name)
            signal.signal(number, signal.SIG_DFL)
            scope.cancel()


if __name__ == "__main__":
    main()
