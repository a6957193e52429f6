"""Settings of the gRPC endpoint, with the keys of RocketMQ 5's proxy where it has one.

Java: proxy/config/ProxyConfig.java
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.settings import setting

DAY = 24 * 3600 * 1000

_DEFAULT_NAMESRV = "127.0.0.1:9876"  # as our client has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """The gRPC endpoint for clients of RocketMQ 5."""

    namesrv_addr: tuple[str, ...] = setting(
        (),
        "Name servers, host:port.",
        default_note="127.0.0.1:9876",
        env="NAMESRV_ADDR",
        flag="-n",
        separator=";",
        important=True,
    )
    bind_address: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.", important=True)
    grpc_server_port: int = setting(
        8081,
        "Port for gRPC, with and without TLS; 0 takes a free one.",
        flag="--grpc-port",
        minimum=0,
        maximum=65535,
        important=True,
    )
    local_serve_addr: str = setting(
        "", "Host in the addresses given to clients.", default_note="the one that they have reached us by"
    )
    grpc_max_connections: int = setting(4096, "Connections that may be open.", minimum=1, maximum=1_000_000)
    grpc_max_held_bytes: int = setting(
        256 << 20,
        "Requests in progress and answers that were not read, of all connections; above, the largest is ended.",
        unit="bytes",
        minimum=64 << 20,
        maximum=1 << 40,
    )
    grpc_shutdown_time_seconds: float = setting(
        3.0, "At a stop, how long calls may take to be answered.", unit="seconds", minimum=0, maximum=600
    )
    max_message_size: int = setting(
        4 << 20, "Longest body of a message.", unit="bytes", minimum=1024, maximum=64 << 20, updatable=False
    )
    max_user_property_size: int = setting(
        16 << 10, "Longest properties, tag and keys of a message together.", unit="bytes", minimum=256, maximum=32767
    )
    user_property_max_num: int = setting(128, "Properties of a message.", minimum=1, maximum=10_000)
    max_message_group_size: int = setting(64, "A message group is shorter than this.", unit="bytes", minimum=1)
    max_delay_time_mills: int = setting(
        DAY, "How far ahead a message may be delivered.", unit="milliseconds", minimum=0, maximum=366 * DAY
    )
    max_transaction_recovery_second: int = setting(
        3600, "Longest time before the first check of a transaction.", unit="seconds", minimum=1
    )
    enable_topic_message_type_check: bool = setting(True, "Whether a topic takes messages of its message.type only.")
    min_invisible_time_mills_for_recv: int = setting(
        10_000, "Shortest invisible time of a receive.", unit="milliseconds", minimum=0
    )
    max_invisible_time_mills: int = setting(12 * 3600 * 1000, "Longest invisible time.", unit="milliseconds", minimum=1)
    default_invisible_time_mills: int = setting(
        60_000, "Invisible time of what a push consumer receives, renewed as long as it needs.",
        unit="milliseconds", minimum=20_000, maximum=3_600_000,
    )  # fmt: skip
    renew_ahead_time_millis: int = setting(
        10_000, "So long before its end an invisible time is renewed.", unit="milliseconds", minimum=1000
    )
    renew_max_time_millis: int = setting(
        3 * 3600 * 1000, "So long it is renewed at most.", unit="milliseconds", minimum=1000
    )
    grpc_client_consumer_min_long_polling_timeout_millis: int = setting(
        5000, "Shortest wait of a receive for messages.", unit="milliseconds", minimum=0
    )
    grpc_client_consumer_max_long_polling_timeout_millis: int = setting(
        20_000, "Longest wait of a receive for messages.", unit="milliseconds", minimum=1000, maximum=600_000
    )
    grpc_client_consumer_long_polling_batch_size: int = setting(
        32, "Messages of one receive of a push consumer.", minimum=1, maximum=32
    )
    grpc_client_producer_max_attempts: int = setting(3, "Tries of a producer.", minimum=1, maximum=100)
    grpc_client_producer_backoff_initial_millis: int = setting(
        10, "A producer's pause before its second try.", unit="milliseconds", minimum=0
    )
    grpc_client_producer_backoff_max_millis: int = setting(1000, "Its longest pause.", unit="milliseconds", minimum=0)
    grpc_client_producer_backoff_multiplier: int = setting(2, "By what each pause is longer.", minimum=1, maximum=100)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers to ask."""
        return self.namesrv_addr or (_DEFAULT_NAMESRV,)
