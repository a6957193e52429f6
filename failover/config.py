"""Settings of failover. None of them exists in RocketMQ.

Java: common/ControllerConfig.java of 5.x is the nearest, and has other keys
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import SettingsError, setting

# The port for replicas is this much above the one for clients: +1 is the port for slaves, -2 the VIP port.
REPLICA_PORT_STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """Settings of brokers that elect a master."""

    failover_enable: bool = setting(
        False, "The brokers of this brokerName elect their master, and brokerRole and brokerId do not count."
    )
    replica_id: int = setting(
        0, "Number of this broker among those of its brokerName, each its own; its brokerId as a slave.",
        minimum=0, maximum=1_000_000, important=True,
    )  # fmt: skip
    etcd_endpoints: tuple[str, ...] = setting(
        (), "Where etcd is: http://host:2379 or https://host:2379, separated by commas.", separator=","
    )
    etcd_user: str = setting("", "User at etcd, if it requires one.")
    etcd_password: str = setting("", "Password of that user.", secret=True)
    etcd_trust_cert_path: str = setting(
        "", "Certificates that etcd's is checked against.", path=True, default_note="the system's"
    )
    etcd_cert_path: str = setting("", "Client certificate for etcd, if it requires one.", path=True)
    etcd_key_path: str = setting("", "Key of that certificate.", path=True)
    etcd_prefix: str = setting("/rocketlet", "Where the keys of failover are in etcd.")
    min_in_sync_replicas: int = setting(
        1, "Sends are refused where fewer replicas, the master counted, have every message.",
        updatable=True, minimum=1, maximum=64,
    )  # fmt: skip
    failover_lease_time: int = setting(
        3000, "A master that etcd has not heard from for this long is replaced.", unit="ms", minimum=1000,
        maximum=600_000,
    )  # fmt: skip
    in_sync_timeout: int = setting(
        2000, "A replica that confirms nothing for this long leaves the in-sync set.", unit="ms", updatable=True,
        minimum=200, maximum=600_000,
    )  # fmt: skip
    replica_listen_port: int = setting(
        0, "Port for the other replicas, on bindAddress.", minimum=0, maximum=65535, default_note="listenPort + 2"
    )

    replica_address: str = setting(
        "", "Address given to other replicas, host:port.", default_note="brokerIP1 and replicaListenPort"
    )

    def __post_init__(self) -> None:
        problems = []
        if self.failover_enable and self.replica_id < 1:
            problems.append("replicaId: give each replica of this brokerName a number of its own, from 1 on")
        for endpoint in self.etcd_endpoints:
            scheme, _, place = endpoint.partition("://")
            if scheme not in ("http", "https") or not place.strip("/").rpartition(":")[2].isdecimal():
                problems.append(f"etcdEndpoints={endpoint}: write http://host:port or https://host:port")
        if bool(self.etcd_cert_path) != bool(self.etcd_key_path):
            problems.append("etcdCertPath and etcdKeyPath belong together")
        if not self.etcd_prefix.startswith("/") or self.etcd_prefix.endswith("/"):
            problems.append(f"etcdPrefix={self.etcd_prefix}: must begin with / and not end with it")
        if problems:
            raise SettingsError(*problems)

    @property
    def lease_seconds(self) -> float:
        return self.failover_lease_time / 1000

    @property
    def in_sync_seconds(self) -> float:
        return self.in_sync_timeout / 1000


def failover_config(loaded: Loaded) -> FailoverConfig:
    """The settings of failover; the defaults if a program has none."""
    for config in loaded.configs:  # asked for in each turn of sends, and to make the defaults takes 5 µs
        if isinstance(config, FailoverConfig):
            return config
    return FailoverConfig()
