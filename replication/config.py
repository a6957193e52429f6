"""Settings of replication, by RocketMQ's keys. `brokerRole` is the store's, `brokerId` the broker's.

Different from RocketMQ 4.9.8: `haAllowed` and `haUseTLS` are ours; an empty slave gets the whole log
(`syncFromLastFile` restores RocketMQ's way; key and default are those of 5.x).

Java: store/config/MessageStoreConfig.java
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from rocketlet.common.settings import SettingsError, setting
from rocketlet.remoting.transport import is_address
from rocketlet.replication.stream_codec import LARGEST_SLICE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Settings of masters and slaves."""

    ha_listen_port: int = setting(
        0, "Port for slaves, on bindAddress.", minimum=0, maximum=65535, default_note="listenPort + 1"
    )
    ha_master_address: str = setting(
        "", "The master's port for slaves, host:port; empty: the name servers know it.", updatable=True
    )
    ha_allowed: tuple[str, ...] = setting(
        (),
        "Addresses or networks (10.0.0.0/8) that slaves may connect from; empty: any that reaches the port, but with"
        " strict access control this host alone, unless TLS with clients' certificates is required.",
    )
    ha_use_tls: bool = setting(
        False, "A slave connects to its master by TLS, with the tls.client settings.", key="haUseTLS"
    )
    sync_from_last_file: bool = setting(
        False, "A new slave gets the last log file only, not the whole log.", updatable=True
    )
    ha_transfer_batch_size: int = setting(
        32 << 10,
        "Bytes of the log in one slice for a slave, at most; several are sent at once.",
        minimum=1,
        maximum=LARGEST_SLICE,
        updatable=True,
    )
    ha_send_heartbeat_interval: int = setting(5000, "How often an idle side sends a heartbeat.", unit="ms", minimum=1)
    ha_housekeeping_interval: int = setting(
        20_000, "A connection that receives nothing for this long is closed.", unit="ms", minimum=1
    )
    ha_slave_fallbehind_max: int = setting(
        256 << 20,
        "A SYNC_MASTER whose best slave lacks more of the log than this does not wait for it (status 11).",
        unit="bytes",
        minimum=0,
        updatable=True,
    )
    slave_timeout: int = setting(
        3000, "How long a send to a SYNC_MASTER waits for a slave (status 12).", unit="ms", minimum=1, updatable=True
    )
    offset_check_in_slave: bool = setting(
        False, "A slave corrects a consumer's offset outside its queue, instead of sending it to the master.",
        updatable=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        problems = []
        for text in self.ha_allowed:
            try:
                ip_network(text, strict=False)
            except ValueError:
                problems.append(f"haAllowed={text}: is no address or network, as in 10.0.0.7 or 10.0.0.0/8")
        if self.ha_master_address and not is_address(self.ha_master_address):
            problems.append(f"haMasterAddress={self.ha_master_address}: is no address of the form host:port")
        if problems:
            raise SettingsError(*problems)

    @property
    def heartbeat_seconds(self) -> float:
        return self.ha_send_heartbeat_interval / 1000

    @property
    def silence_seconds(self) -> float:
        return self.ha_housekeeping_interval / 1000
