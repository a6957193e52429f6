"""Settings of connections, by RocketMQ's keys. There are none for threads and selectors: one task per connection does
their work.

RocketMQ limits one-way and asynchronous requests with process-wide semaphores; here the same numbers apply to each
connection, so that a peer that does not read cannot keep a broker from notifying the others.

Java: remoting/netty/NettyServerConfig.java, NettyClientConfig.java, TlsSystemConfig.java
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocketlet.common.settings import SettingsError, setting
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.frame_codec import FRAME_LIMIT

_FRAME_KEY = "com.rocketmq.remoting.frameMaxLength"
_FRAME_DOC = "Longest frame in bytes, its first four included; a longer one ends its connection."
# A smaller limit would be below what a server may send: a pull's answer has 256 KiB and one message of 4 MiB.
_SMALLEST_FRAME_LIMIT = 65_536

UNSENT_HIGH = 4 << 20
UNSENT_LOW = 1 << 20


class TlsMode(StrEnum):
    """How a server treats the first byte of a connection, which is 22 for TLS and 0 for a plain frame."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server asks TLS clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class SerializeType(StrEnum):
    """The header type of our own requests."""

    JSON = "JSON"
    ROCKETMQ = "ROCKETMQ"
    MSGPACK = "MSGPACK"

    @property
    def header_type(self) -> HeaderType:
        """The number in a frame."""
        return HeaderType[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of the connections that a server has accepted."""

    server_oneway_semaphore_value: int = setting(
        256, "One-way requests to one peer that may wait to be written.", minimum=1
    )
    server_async_semaphore_value: int = setting(64, "Requests to one peer that may wait for their answers.", minimum=1)
    server_channel_max_idle_time_seconds: int = setting(
        120, "A connection without traffic either way is closed after this.", unit="seconds", minimum=1
    )
    server_socket_snd_buf_size: int = setting(
        0, "Send buffer of a socket; 0 leaves it to the system.", unit="bytes", minimum=0
    )
    server_socket_rcv_buf_size: int = setting(
        0, "Receive buffer of a socket; 0 leaves it to the system.", unit="bytes", minimum=0
    )
    server_socket_backlog: int = setting(1024, "Connections that may wait to be accepted.", minimum=1)
    write_buffer_high_water_mark: int = setting(
        0,
        "Unsent answers of a connection from which on no more requests are read from it; 0: 4 MiB.",
        unit="bytes",
        minimum=0,
    )
    write_buffer_low_water_mark: int = setting(
        0, "Reading resumes when unsent answers have fallen to this; 0: 1 MiB.", unit="bytes", minimum=0
    )
    server_drain_seconds: float = setting(
        3.0,
        "At a stop, how long requests in progress may take to be answered.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )
    frame_max_length: int = setting(FRAME_LIMIT, _FRAME_DOC, key=_FRAME_KEY, minimum=_SMALLEST_FRAME_LIMIT)
    max_connections: int = setting(
        50_000, "Connections at once; one more is closed before anything is read from it.", minimum=1
    )
    max_connections_by_address: int = setting(10_000, "Connections at once from one address.", minimum=1)
    requests_per_second_by_address: int = setting(
        0, "Requests that one address may send in a second; more are answered SYSTEM_BUSY. 0: any number.", minimum=0
    )
    log_lines_per_second_by_address: int = setting(
        5, "Log lines in a second about what one address sends; more are counted and left out.", minimum=1
    )
    unfinished_frames_max: int = setting(
        512 << 20,
        "What may be kept of long frames whose end has not come, in all; the one that exceeds it ends its connection.",
        unit="bytes",
        minimum=1 << 20,
    )
    unread_answers_max: int = setting(
        1 << 30,
        "Unread answers of all peers together; above it, peers that left 64 KiB of them unread are not read from.",
        unit="bytes",
        minimum=1 << 20,
    )
    tls_mode: TlsMode = setting(
        TlsMode.PERMISSIVE, "Whether TLS clients, plain clients or both are served.", key="tls.server.mode"
    )
    tls_test_mode: bool = setting(
        True,
        "A server without tls.server.certPath makes itself a certificate, where it serves plain clients too.",
        key="tls.test.mode.enable",
    )
    tls_cert_path: str = setting("", "Certificate chain (PEM).", key="tls.server.certPath", path=True)
    tls_key_path: str = setting("", "Private key (PEM) of the certificate.", key="tls.server.keyPath", path=True)
    tls_key_password: str = setting(
        "", "Password of the private key, if it has one.", key="tls.server.keyPassword", secret=True
    )
    tls_trust_path: str = setting(
        "", "Certificates (PEM) that clients' must be signed by.", key="tls.server.trustCertPath", path=True
    )
    tls_client_auth: ClientAuth = setting(
        ClientAuth.NONE, "Whether TLS clients must show a certificate.", key="tls.server.need.client.auth"
    )

    @property
    def trusts_certified_only(self) -> bool:
        """Whether every peer has shown a certificate that we trust."""
        return self.tls_mode is TlsMode.ENFORCING and self.tls_client_auth is ClientAuth.REQUIRE

    @property
    def unsent_high(self) -> int:
        """writeBufferHighWaterMark; its 0, common in files from the field, leaves the bound to us."""
        return self.write_buffer_high_water_mark or UNSENT_HIGH

    @property
    def unsent_low(self) -> int:
        """writeBufferLowWaterMark, likewise."""
        return self.write_buffer_low_water_mark or min(UNSENT_LOW, self.unsent_high)

    def __post_init__(self) -> None:
        if self.unsent_low > self.unsent_high:
            raise SettingsError("writeBufferLowWaterMark: must not be above writeBufferHighWaterMark")
        if self.tls_mode is TlsMode.ENFORCING and not self.tls_cert_path:
            raise SettingsError("tls.server.mode=enforcing: needs tls.server.certPath and tls.server.keyPath")
        if self.tls_client_auth is ClientAuth.REQUIRE and not self.tls_trust_path:
            raise SettingsError("tls.server.need.client.auth=require: needs tls.server.trustCertPath")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Settings of the connections that we open."""

    client_oneway_semaphore_value: int = setting(
        65_535, "One-way requests to one server that may wait to be written.", minimum=1
    )
    client_async_semaphore_value: int = setting(
        65_535, "Requests to one server that may wait for their answers.", minimum=1
    )
    connect_timeout_millis: int = setting(3000, "How long to try to connect.", unit="milliseconds", minimum=1)
    client_channel_max_idle_time_seconds: int = setting(
        120, "A connection without traffic either way is closed after this.", unit="seconds", minimum=1
    )
    client_close_socket_if_timeout: bool = setting(
        True, "Close a connection on which nothing arrived while a call timed out."
    )
    client_write_buffer_high_water_mark: int = setting(
        16 << 20, "Unsent requests of a connection from which on calls wait for room.", unit="bytes", minimum=0
    )
    frame_max_length: int = setting(FRAME_LIMIT, _FRAME_DOC, key=_FRAME_KEY, minimum=_SMALLEST_FRAME_LIMIT)
    serialize_type: SerializeType = setting(
        SerializeType.JSON,
        "Header type of requests; MSGPACK is understood by Rocketlet alone, with others JSON is used.",
        key="rocketmq.serialize.type",
    )
    use_tls: bool = setting(False, "Connect by TLS.", key="useTLS", old_keys=("tls.enable",))
    tls_auth_server: bool = setting(
        False, "Refuse servers whose certificate is not trusted.", key="tls.client.authServer"
    )
    tls_trust_path: str = setting(
        "", "Certificates (PEM) to trust; empty: the system's.", key="tls.client.trustCertPath", path=True
    )
    tls_cert_path: str = setting(
        "", "Our certificate chain (PEM), where the server asks for one.", key="tls.client.certPath", path=True
    )
    tls_key_path: str = setting("", "Private key (PEM) of our certificate.", key="tls.client.keyPath", path=True)
    tls_key_password: str = setting(
        "", "Password of the private key, if it has one.", key="tls.client.keyPassword", secret=True
    )
    tls_server_name: str = setting(
        "",
        "Name that the server's certificate must carry; empty: unchecked, as in RocketMQ.",
        key="tls.client.serverName",
    )
