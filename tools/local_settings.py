"""What a stack in one process is asked to be (`local.py`), and the settings of each server that follow from it.

Java: none
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketlet.access.config import AccessConfig
from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.configs import BROKER_CONFIGS
from rocketlet.common.config_file import ConfigFile, Loaded, load
from rocketlet.common.settings import settings_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.proxy.config import ProxyConfig
from rocketlet.remoting.config import PoolConfig, ServerConfig

LOOPBACK = "127.0.0.1"
ELECTING = 3  # from this number of replicas on they elect their master
VIP_AND_REPLICATION = 10  # ports between two brokers of one host, so that VIP (-2) and replication (+1) do not meet

# In memory a file's whole length is allocated at once, so files are small; the limit on messages is unchanged.
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
    replicas: int = 1
    """Copies of each broker's messages: a master, SYNC_MASTER unless `settings` say otherwise, and its slaves. Three
    and more elect their master, and so do two with `failoverEnable=true` among the settings."""
    processes: bool = False
    """Each broker in a process of its own, to use more than one core."""
    breakable: bool = False
    """Whether brokers can be killed, paused and parted from each other (`kill`, `pause`, `partition`)."""
    metrics_port: int | None = None
    """One page of metrics for all that runs here; 0 takes a free port, None serves none."""
    grpc_port: int | None = None
    """Of the endpoint for clients of RocketMQ 5; 0 takes a free one, None serves none."""
    metrics_port_may_differ: bool = False
    """Whether a free port will do where that one is taken."""
    settings: Mapping[str, str] = field(default_factory=dict)
    file: ConfigFile | None = None

    @property
    def elects(self) -> bool:
        """Whether the replicas of a broker elect their master."""
        return self.replicas >= ELECTING or self.settings.get("failoverEnable") == "true"

    def namesrv(self, number: int) -> Loaded:
        """The settings of a name server."""
        flags = {"bindAddress": self.host, "listenPort": str(_port(self.namesrv_port, number, 1))}
        if self.directory is not None:
            folder = f"{self.directory}/{namesrv_name(number)}"
            flags |= {"kvConfigPath": f"{folder}/kvConfig.json", "configStorePath": f"{folder}/namesrv.properties"}
        flags |= self._tls_of_servers()
        return load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)

    def _tls_of_servers(self) -> dict[str, str]:
        """What the brokers are told about TLS as servers: they trust name servers with the same certificate."""
        given = {entry.key: entry.value for entry in self.file.entries} if self.file is not None else {}
        keys = {setting.key for setting in settings_of(ServerConfig) if setting.key.startswith("tls.")}
        return {key: text for key, text in {**given, **self.settings}.items() if key in keys}

    def broker(self, number: int, replica: int, namesrvs: tuple[str, ...]) -> Loaded:
        """The settings of one broker: of the master with that number among the masters (replica 0), or of one of its
        replicas."""
        return load(*BROKER_CONFIGS, file=self.file, flags=self.broker_flags(number, replica, namesrvs))

    def broker_flags(self, number: int, replica: int, namesrvs: tuple[str, ...]) -> dict[str, str]:
        """What is set for one broker: that which follows from these options, and what is given for all."""
        place = number * self.replicas + replica
        flags = {
            "brokerName": broker_name(number),
            "bindAddress": self.host,
            "listenPort": str(_port(self.broker_port, place, VIP_AND_REPLICATION)),
            "namesrvAddr": ";".join(namesrvs),
        }
        overrides = {key: text for key, text in self.settings.items() if key not in _grpc_keys()}
        if self.elects:
            overrides |= {"failoverEnable": "true", "replicaId": str(replica + 1), "etcdEndpoints": ""}
        elif replica:
            overrides |= {"brokerRole": "SLAVE", "brokerId": str(replica)}
        elif self.replicas > 1:
            overrides.setdefault("brokerRole", "SYNC_MASTER")
        if self.directory is None:
            flags |= {"storePathRootDir": "store", **IN_MEMORY}
        else:
            flags["storePathRootDir"] = f"{self.directory}/{member_name(number, replica)}"
        if self.metrics_port is not None:
            flags["metricsExporterType"] = "DISABLE"  # one page has the metrics of all
        if self.advertise:
            flags["brokerIP1"] = self.advertise
        return flags | overrides

    def proxy(self, port: int, namesrvs: tuple[str, ...]) -> ProxyConfig:
        """The settings of the gRPC endpoint at that port."""
        flags = {key: text for key, text in self.settings.items() if key in _grpc_keys()}
        flags |= {"namesrvAddr": ";".join(namesrvs), "bindAddress": self.host, "grpcServerPort": str(port)}
        if self.advertise:
            flags["localServeAddr"] = self.advertise
        return load(ProxyConfig, flags=flags)[ProxyConfig]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses that clients connect to; `loopback` for clients on this host, if that is another address."""

    namesrv: str
    namesrvs: tuple[str, ...]
    brokers: Mapping[str, str]
    loopback: Mapping[str, str] = field(default_factory=dict)
    metrics: str = ""
    grpc: str = ""
    recovered: Mapping[str, str] = field(default_factory=dict)
    """What the recovery of a broker reported, if its store had not been closed cleanly."""


def broker_name(number: int) -> str:
    """`broker-a` for the first."""
    return f"broker-{chr(ord('a') + number)}"


def member_name(number: int, replica: int) -> str:
    """`broker-a` for the master as it starts, `broker-a-1` for its first replica."""
    return f"{broker_name(number)}-{replica}" if replica else broker_name(number)


def namesrv_name(number: int) -> str:
    """`namesrv` for the first, `namesrv-1` for the second."""
    return f"namesrv-{number}" if number else "namesrv"


def _grpc_keys() -> set[str]:
    """The gRPC endpoint's own settings."""
    brokers = {setting.key for kind in (BrokerConfig, ServerConfig, PoolConfig) for setting in settings_of(kind)}
    return {setting.key for setting in settings_of(ProxyConfig)} - brokers


def _port(first: int, number: int, step: int) -> int:
    """The port of the nth server; if the first takes a free port, all do."""
    return first + number * step if first else 0
