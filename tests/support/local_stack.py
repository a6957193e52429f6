"""A name server and a broker on real loopback ports, in a thread of this process, on a disk in memory.

For tests that need plain threads: the blocking clients, asyncio, and passing work between threads and loop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.common.clock import system_clock
from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import settings_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.transport import TcpNetwork
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import loaded_settings


@contextmanager
def local_stack(**settings: object) -> Iterator[str]:
    """Yields the name server's address; `settings` are the broker's, by field name."""
    started: list[str] = []
    ready = threading.Event()
    token: list[trio.lowlevel.TrioToken] = []
    scope = trio.CancelScope()

    async def serve() -> None:
        token.append(trio.lowlevel.current_trio_token())
        configs = (NamesrvConfig(listen_port=0), ServerConfig(), MetricsConfig(), AccessConfig())
        origins = {setting.key: "default" for config in configs for setting in settings_of(type(config))}
        with scope:
            async with trio.open_nursery() as nursery:
                server = NameServer(Loaded(configs, origins), TcpNetwork(), files=MemoryFiles())
                namesrv: str = await nursery.start(server.run)
                loaded = loaded_settings(listen_port=0, namesrv_addr=(namesrv,), **settings)
                broker = Broker(loaded, TcpNetwork(), MemoryDisk(), clock=system_clock, rng=Random(1))
                await nursery.start(broker.run)
                started.append(namesrv)
                ready.set()

    def run() -> None:
        try:
            trio.run(serve)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="local-stack")
    thread.start()
    ready.wait(120)
    try:
        assert started, "the stack did not start; its traceback is above"
        yield started[0]
    finally:
        if token:
            token[0].run_sync_soon(scope.cancel)
        thread.join(120)
