"""Settings of the broker itself, by RocketMQ's keys; those of the log and its files are in `store/config.py`.

Settings marked `updatable` can be changed while the broker runs (request 25), all others only in the file. Four
defaults differ from RocketMQ's, because a safe or useful default has no cost: the broker listens on loopback only until
`bindAddress` opens it, SQL92 filters are on, a broker without `brokerIP1` registers the address from which it reaches
its name server, and a send that waited 200 ms is not refused yet, since its client waits 3 s.

Java: common/BrokerConfig.java, remoting/netty/NettyServerConfig.java
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketlet.common.config_file import DEFAULT, Loaded
from rocketlet.common.settings import LONG_MAX, SettingsError, setting
from rocketlet.common.topic import PERM_READ, PERM_WRITE, TRACE_TOPIC, is_legal_name

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# The VIP port is the main port minus this.
VIP_STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of the broker."""

    # Who and where
    broker_name: str = setting("", "Name of this broker and of its slaves.", important=True, default_note="host name")
    broker_cluster_name: str = setting("DefaultCluster", "Cluster that the broker belongs to.", important=True)
    broker_id: int = setting(0, "0 for the master of its name, above for a slave.", important=True, minimum=0)
    namesrv_addr: tuple[str, ...] = setting(
        (), "Name servers to register at, host:port.", important=True, env="NAMESRV_ADDR", flag="-n"
    )
    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 opens the broker to every network of the host, and is the default where"
        " brokerIP1 or brokerIP2 names another address than loopback (:: where that is an IPv6 address).",
        important=True,
    )
    listen_port: int = setting(
        10911, "Port for clients; the VIP port is two below. 0 takes a free one.", minimum=0, maximum=65535
    )
    broker_ip1: str = setting(
        "",
        "Address that clients get.",
        key="brokerIP1",
        important=True,
        default_note="loopback while bindAddress is, else the host's own",
    )
    broker_ip2: str = setting("", "Address that slaves get.", key="brokerIP2", default_note="brokerIP1")
    region_id: str = setting("DefaultRegion", "Region that send answers name; message traces carry it.", updatable=True)

    # What it allows
    broker_permission: int = setting(
        PERM_READ | PERM_WRITE,
        "6: read and write, 4: read only, 2: write only.",
        updatable=True,
        choices=("2", "4", "6"),
        minimum=2,
        maximum=6,
    )
    start_accept_send_request_time_stamp: int = setting(
        0, "Sends are refused until this time.", unit="ms since 1970", updatable=True, minimum=0, maximum=LONG_MAX
    )
    auto_create_topic_enable: bool = setting(
        True, "A send to an unknown topic creates it.", updatable=True, important=True
    )
    default_topic_queue_nums: int = setting(
        8, "Queues of topics that a send creates, at most.", updatable=True, minimum=1, maximum=1024
    )
    cluster_topic_enable: bool = setting(True, "The topic named after the cluster may be read and written.")
    broker_topic_enable: bool = setting(True, "The topic named after the broker may be read and written.")
    auto_create_subscription_group: bool = setting(
        True, "An unknown consumer group is created when it is first seen.", updatable=True, important=True
    )
    reject_transaction_message: bool = setting(
        False, "Transactional messages are refused.", updatable=True, important=True
    )
    trace_topic_enable: bool = setting(False, "The topic of message traces is created.", important=True)
    msg_trace_topic_name: str = setting(TRACE_TOPIC, "Name of the topic of message traces.", important=True)
    trace_on: bool = setting(True, "Clients are asked to record traces, if they do at all.", updatable=True)
    config_black_list: tuple[str, ...] = setting(
        ("configBlackList", "brokerConfigPath"), "Settings that a request to change is refused for (code 16)."
    )

    # Consumers
    flush_consumer_offset_interval: int = setting(
        5000, "How often consumer offsets are written.", unit="ms", updatable=True, minimum=100
    )
    long_polling_enable: bool = setting(
        True, "A pull that finds nothing waits as long as its client asks for.", updatable=True
    )
    short_polling_time_mills: int = setting(
        1000, "How long it waits otherwise.", unit="ms", updatable=True, minimum=0, maximum=30_000
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "Members of a group are notified when others come and go.", updatable=True
    )
    slave_read_enable: bool = setting(
        False, "Consumers that lag far behind are sent to a slave.", updatable=True, important=True
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False, "A group that lags too far behind may no longer consume.", updatable=True
    )
    consumer_fallbehind_threshold: int = setting(
        17_179_869_184, "How far that is.", unit="bytes of the log", updatable=True, minimum=0, maximum=LONG_MAX
    )

    # Filters
    enable_property_filter: bool = setting(True, "Consumers may filter by SQL92 expressions.", updatable=True)
    filter_support_retry: bool = setting(False, "Such filters apply to retried messages too.", updatable=True)
    enable_calc_filter_bit_map: bool = setting(
        False, "Filters are applied when a message comes, and the result is kept beside its queue entry."
    )
    expect_consumer_num_use_filter: int = setting(32, "Groups a topic that those bits are made for.", minimum=1)
    max_error_rate_of_bloom_filter: int = setting(
        20, "How often those bits may be wrong.", unit="percent", minimum=1, maximum=99
    )
    filter_data_clean_time_span: int = setting(
        86_400_000, "How long the filter of a group that left is kept.", unit="ms", updatable=True, minimum=0
    )

    # Delayed messages
    timer_wheel_enable: bool = setting(
        True, "Messages may have any delivery time (TIMER_DELIVER_MS and its like).", updatable=True
    )
    timer_max_delay_sec: int = setting(
        259_200, "How far ahead that time may be.", unit="s", updatable=True, minimum=1, maximum=31_622_400
    )
    recall_message_enable: bool = setting(True, "Such messages can be recalled by their handle.", updatable=True)

    # Transactions and replies
    transaction_time_out: int = setting(
        6000,
        "Age at which an undecided transaction is asked about.",
        unit="ms",
        updatable=True,
        minimum=0,
        maximum=LONG_MAX,
    )
    transaction_check_max: int = setting(
        15, "How often it is asked about, at most.", updatable=True, minimum=1, important=True
    )
    transaction_check_interval: int = setting(
        60_000,
        "Pause between two rounds of asking.",
        unit="ms",
        updatable=True,
        minimum=100,
        maximum=LONG_MAX,
        important=True,
    )
    store_reply_message_enable: bool = setting(True, "Replies are stored as well as delivered.", updatable=True)

    # Name servers
    register_name_server_period: int = setting(
        30_000, "How often the broker registers.", unit="ms, held between 10 and 60 s", updatable=True, minimum=0
    )
    register_broker_timeout_mills: int = setting(
        6000, "How long a name server may take.", unit="ms", updatable=True, minimum=100
    )
    force_register: bool = setting(
        True, "Register every time; else ask the name servers first whether anything changed.", updatable=True
    )
    compressed_register: bool = setting(False, "Send the topic table deflated.", updatable=True)

    # Overload
    broker_fast_failure_enable: bool = setting(
        True, "Requests that waited too long are refused instead of worked on.", updatable=True
    )
    wait_time_mills_in_send_queue: int = setting(
        2000, "How long a send may wait; clients give up after 3 s.", unit="ms", updatable=True, minimum=1
    )
    wait_time_mills_in_pull_queue: int = setting(
        5000, "How long a pull may wait.", unit="ms", updatable=True, minimum=1
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000, "How long a heartbeat may wait.", unit="ms", updatable=True, minimum=1
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3000, "How long the end of a transaction may wait.", unit="ms", updatable=True, minimum=1
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000, "Pulls parked at once, at most; more are answered SYSTEM_BUSY.", updatable=True, minimum=1
    )

    def __post_init__(self) -> None:
        problems = []
        for key, name in (("brokerClusterName", self.broker_cluster_name), ("brokerName", self.broker_name)):
            if name and not is_legal_name(name.replace(".", "-")):
                problems.append(f"{key}={name}: a name of letters, digits, '.', '%', '|', '_' and '-' is needed")
        if not self.broker_cluster_name:
            problems.append("brokerClusterName is empty: give the cluster a name, or leave the line away")
        if 0 < self.listen_port <= VIP_STEP:
            problems.append(f"listenPort={self.listen_port}: must leave room for the VIP port two below")
        if problems:
            raise SettingsError(*problems)

    @property
    def loopback_only(self) -> bool:
        return self.bind_address in LOOPBACK

    @property
    def advertises_unreachable_address(self) -> bool:
        """Whether the address given to clients is one that only this host can reach."""
        return self.loopback_only and self.broker_ip1 not in ("", *LOOPBACK)

    @property
    def registration_pause(self) -> float:
        """Seconds between two registrations."""
        return min(max(self.register_name_server_period, 10_000), 60_000) / 1000


def reachable(loaded: Loaded) -> Loaded:
    """A broker.conf from the field sets brokerIP1 but not bindAddress, which RocketMQ does not have: listen there
    too."""
    config = loaded[BrokerConfig]
    bound = _address_for(config)
    if loaded.origins["bindAddress"] != DEFAULT or bound == config.bind_address:
        return loaded
    configs = tuple(replace(each, bind_address=bound) if each is config else each for each in loaded.configs)
    origin = f"follows {'brokerIP1' if config.broker_ip1 else 'brokerIP2'}"
    return replace(loaded, configs=configs, origins={**loaded.origins, "bindAddress": origin})


def _address_for(config: BrokerConfig) -> str:
    """Where to listen so that the addresses given to clients and slaves are reached."""
    given = [address for address in (config.broker_ip1, config.broker_ip2) if address]
    if all(address in LOOPBACK for address in given):
        return "::1" if "::1" in given[:1] else config.bind_address
    return "::" if any(":" in address for address in given) else "0.0.0.0"


class Settings:
    """The broker's current settings. Code reads a setting here each time, since it may change."""

    __slots__ = ("now",)

    def __init__(self, config: BrokerConfig) -> None:
        self.now = config
