"""Name servers and brokers in one process: what `rocketlet up` runs, and what the pytest fixtures give to tests.

    async with trio.open_nursery() as nursery:
        stack = LocalStack(LocalSettings(directory="./rocketlet-data"))
        addresses = await nursery.start(stack.run)

With a directory, everything is kept there, and a restart continues where the last run ended, even after `kill -9`.
Without one, everything is in memory and no file is touched.

Java: test/base/IntegrationTestBase.java, which starts them for RocketMQ's own tests
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.broker.config import BrokerConfig
from rocketlet.common.config_file import ConfigFile, Loaded, load
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.metrics.page import Source
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.shelter import shelter
from rocketlet.remoting.transport import Network, TcpNetwork
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import StoreConfig

if TYPE_CHECKING:
    from rocketlet.store.disk import Disk

LOOPBACK = "127.0.0.1"
VIP_AND_REPLICATION = 10  # ports between two brokers of one host, so that VIP (-2) and replication (+1) do not meet

# In memory a file's whole length is taken at once, so files are small; a message may be as long as ever.
IN_MEMORY: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
    "sealEnable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The options. `settings` are the brokers', by RocketMQ's keys; they take precedence over `file`."""

    directory: str | None = None
    host: str = LOOPBACK
    advertise: str = ""
    namesrv_port: int = 9876
    broker_port: int = 10911
    namesrvs: int = 1
    brokers: int = 1
    metrics_port: int | None = None
    """One page of metrics for all that runs here; 0 takes a free port, None serves none."""
    metrics_port_may_differ: bool = False
    """Whether a free port will do where that one is taken."""
    settings: Mapping[str, str] = field(default_factory=dict)
    file: ConfigFile | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses that clients connect to; `loopback` for clients on this host, where that is another address."""

    namesrv: str
    namesrvs: tuple[str, ...]
    brokers: Mapping[str, str]
    loopback: Mapping[str, str] = field(default_factory=dict)
    metrics: str = ""
    recovered: Mapping[str, str] = field(default_factory=dict)
    """What the recovery of a broker reported, if its store had not been closed cleanly."""


class LocalStack:
    """`run` serves until it is cancelled. Raises SettingsError when it is made, if a setting is wrong."""

    def __init__(self, chosen: LocalSettings, network: Network | None = None) -> None:
        self._chosen = chosen
        self._network = network or TcpNetwork()
        self.faults = Faults(self._settle)
        self.namesrv_faults = Faults()
        self.brokers: dict[str, Broker] = {}
        self._namesrvs: list[NameServer] = []
        self._loaded = [self._broker_settings(number, ()) for number in range(chosen.brokers)]
        self.warnings = self._loaded[0].warnings if self._loaded else ()

    async def run(self, *, task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED) -> None:
        """Starts with the addresses, once clients can use them. Stops brokers before name servers."""
        async with shelter() as sheltered:  # brokers unregister at name servers that still listen
            namesrvs = tuple([await self._start_namesrv(sheltered, n) for n in range(self._chosen.namesrvs)])
            async with trio.open_nursery() as nursery:
                told = dict([await self._start_broker(nursery, n, namesrvs) for n in range(self._chosen.brokers)])
                here = {
                    name: broker.identity.loopback_address
                    for name, broker in self.brokers.items()
                    if broker.identity.loopback_address not in ("", told[name])
                }
                recovered = {
                    name: "; ".join(broker.store.report.lines())
                    for name, broker in self.brokers.items()
                    if not broker.store.report.was_clean
                }
                metrics = await self._start_metrics(nursery)
                task_status.started(Addresses(";".join(namesrvs), namesrvs, told, here, metrics, recovered))
                await trio.sleep_forever()

    async def _start_broker(self, nursery: trio.Nursery, number: int, namesrvs: tuple[str, ...]) -> tuple[str, str]:
        loaded = self._broker_settings(number, namesrvs)
        broker = Broker(loaded, self._network, self._disk(), faults=self.faults)
        address: str = await nursery.start(broker.run)
        self.brokers[broker.identity.name] = broker
        return broker.identity.name, address

    async def _start_metrics(self, nursery: trio.Nursery) -> str:
        port = self._chosen.metrics_port
        if port is None:
            return ""
        sources: list[Source] = [server.metrics for server in self._namesrvs]
        sources += [broker.metrics for broker in self.brokers.values()]
        endpoint = Endpoint(self._network, sources, self._loaded[0][MetricsConfig].metrics_max_series)
        try:
            address: str = await nursery.start(endpoint.serve, self._chosen.host, port)
        except ListenFailed:
            if not self._chosen.metrics_port_may_differ:
                raise
            address = await nursery.start(endpoint.serve, self._chosen.host, 0)
        return address

    async def _start_namesrv(self, nursery: trio.Nursery, number: int) -> str:
        chosen = self._chosen
        flags = {"bindAddress": chosen.host, "listenPort": str(_port(chosen.namesrv_port, number, 1))}
        files = None
        if chosen.directory is None:
            from rocketlet.namesrv.memory_files import MemoryFiles

            files = MemoryFiles()
        else:
            folder = f"{chosen.directory}/namesrv" + (f"-{number}" if number else "")
            flags |= {"kvConfigPath": f"{folder}/kvConfig.json", "configStorePath": f"{folder}/namesrv.properties"}
        loaded = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)
        server = NameServer(loaded, self._network, files=files, faults=self.namesrv_faults)
        address: str = await nursery.start(server.run)
        self._namesrvs.append(server)
        host, _, port = address.rpartition(":")
        return f"{LOOPBACK}:{port}" if host in ("0.0.0.0", "[::]") else address

    def _broker_settings(self, number: int, namesrvs: tuple[str, ...]) -> Loaded:
        chosen = self._chosen
        letter = chr(ord("a") + number)
        flags = {
            "brokerName": f"broker-{letter}",
            "bindAddress": chosen.host,
            "listenPort": str(_port(chosen.broker_port, number, VIP_AND_REPLICATION)),
            "namesrvAddr": ";".join(namesrvs),
        }
        if chosen.directory is None:
            flags |= {"storePathRootDir": "store", **IN_MEMORY}
        else:
            flags["storePathRootDir"] = f"{chosen.directory}/broker-{letter}"
        if chosen.metrics_port is not None:
            flags["metricsExporterType"] = "DISABLE"  # one page has the metrics of all
        if chosen.advertise:
            flags["brokerIP1"] = chosen.advertise
        return load(
            BrokerConfig,
            StoreConfig,
            ReplicationConfig,
            ServerConfig,
            PoolConfig,
            MetricsConfig,
            AccessConfig,
            file=chosen.file,
            flags=flags | dict(chosen.settings),
        )

    def _disk(self) -> Disk:
        if self._chosen.directory is None:
            from rocketlet.store.memory_disk import MemoryDisk

            return MemoryDisk()
        from rocketlet.store.disk import RealDisk

        return RealDisk()

    def _settle(self) -> None:
        for broker in self.brokers.values():
            broker.settle()


def _port(first: int, number: int, step: int) -> int:
    """The port of the nth server; if the first one takes a free port, all do."""
    return first + number * step if first else 0
