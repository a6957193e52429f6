"""A whole cluster in one trio run: name servers and brokers on a memory network, memory disks, in virtual time.

async with memory_cluster(brokers=2) as cluster:
    async with AsyncProducer("g", namesrv=cluster.namesrv, world=cluster.world()) as producer:
        await producer.send(Message("T", b"hi"))
    await cluster.kill("broker-a")                              # as kill -9
    await cluster.start("broker-a")
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.client.talking.session import World
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import settings_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import loaded_settings
from tests.support.virtual_time import START_MS

HOST = "10.1.0.1"


class Cluster:
    """Servers by name, each killed and started by a test."""

    def __init__(self, nursery: trio.Nursery, namesrvs: int, tls: dict[str, Any], settings: dict[str, object]) -> None:
        self.network = MemoryNetwork(host="10.2.0.1")
        self.clock = TrioWallClock(START_MS)
        self.random = Random(7)
        self.namesrvs = [f"{HOST}:{9876 + number}" for number in range(namesrvs)]
        self.namesrv = ";".join(self.namesrvs)
        self.brokers: dict[str, Broker] = {}
        self._nursery = nursery
        self._tls = tls
        self._settings = settings
        self._ports: dict[str, int] = {}
        self._disks: dict[str, MemoryDisk] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._clients = 0

    def world(self) -> World:
        """The seams of another client, on its own host."""
        self._clients += 1
        return World(network=self.network, clock=self.clock, random=Random(self._clients), ip=f"10.3.0.{self._clients}")

    def address(self, broker: str) -> str:
        """Where a broker listens."""
        return f"{HOST}:{self._ports[broker]}"

    async def start_namesrv(self, number: int) -> None:
        """Start a name server that is not running."""
        port = 9876 + number
        configs = (
            NamesrvConfig(bind_address=HOST, listen_port=port, order_message_enable=True),
            ServerConfig(**self._tls),
            MetricsConfig(),
            AccessConfig(),
        )
        origins = {setting.key: "default" for config in configs for setting in settings_of(type(config))}
        server = NameServer(Loaded(configs, origins), self.network, files=MemoryFiles())
        await self._nursery.start(self._host, self.namesrvs[number], server)

    async def start(self, broker: str) -> None:
        """Start a broker that is not running, on the disk that it had."""
        port = self._ports.setdefault(broker, 10911 + 10 * len(self._ports))
        disk = self._disks.setdefault(broker, MemoryDisk())
        loaded = loaded_settings(
            broker_name=broker,
            bind_address=HOST,
            broker_ip1=HOST,
            listen_port=port,
            namesrv_addr=tuple(self.namesrvs),
            **self._tls,
            **self._settings,
        )
        running = self.brokers[broker] = Broker(
            loaded, self.network, disk, clock=self.clock, rng=Random(self.random.getrandbits(32))
        )
        await self._nursery.start(self._host, broker, running)

    async def _host(
        self, name: str, server: Broker | NameServer, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as scope:
            self._scopes[name] = scope
            await server.run(task_status=task_status)

    async def stop(self, name: str) -> None:
        """End a broker or name server (by its address) in order."""
        self._scopes.pop(name).cancel()
        self.brokers.pop(name, None)
        await trio.sleep(5)

    async def kill(self, broker: str, *, power_cut: bool = False) -> None:
        """As `kill -9`: connections break. A power cut also loses any part of what was not flushed."""
        self.network.isolate(self.address(broker))
        disk = self._disks[broker]
        self._disks[broker] = disk.crash(self.random) if power_cut else disk.copy()
        self._scopes.pop(broker).cancel()
        del self.brokers[broker]
        await trio.sleep(5)
        self.network.rejoin(self.address(broker))
        self.network.cut(self.address(broker))


@asynccontextmanager
async def memory_cluster(
    *, namesrvs: int = 1, brokers: int = 1, tls: dict[str, Any] | None = None, **settings: object
) -> AsyncIterator[Cluster]:
    """Name servers and brokers (broker-a, broker-b ...) until the block ends.

    `settings` are the brokers', by field name; `tls` those of all servers' connections.
    """
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, namesrvs, tls or {}, settings)
        for number in range(namesrvs):
            await cluster.start_namesrv(number)
        for number in range(brokers):
            await cluster.start(f"broker-{chr(ord('a') + number)}")
        yield cluster
        nursery.cancel_scope.cancel()
