"""The settings of clients, with every default in sight. Times are in seconds, sizes in bytes.

The defaults are RocketMQ 4.9's. Pass a whole config, or single settings by name:

    Producer("group", namesrv="127.0.0.1:9876", send_timeout=5.0, retries=4)
    Producer("group", config=ProducerConfig(namesrv="127.0.0.1:9876", send_timeout=5.0))

An unknown setting is an error that lists those with similar names.

Java: client/ClientConfig.java, producer/DefaultMQProducer.java, consumer/DefaultMQPushConsumer.java
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from rocketlet.client.consuming.queue_allocation import Allocation, averagely
from rocketlet.client.errors import InvalidUse
from rocketlet.client.sending.latency_faults import DEFAULT_AVOIDANCES_MS, DEFAULT_LATENCIES_MS
from rocketlet.client.validators import MAX_MESSAGE_SIZE, check_text
from rocketlet.common import topic as topics

NAMESRV_VARIABLE = "NAMESRV_ADDR"
ACCESS_KEY_VARIABLE = "ROCKETLET_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKETLET_SECRET_KEY"
TLS_VARIABLE = "ROCKETLET_TLS"
TLS_VARIABLES = {
    name: f"ROCKETLET_{name.upper()}" for name in ("tls_ca_file", "tls_cert_file", "tls_key_file", "tls_server_name")
}
DEFAULT_NAMESRV = "127.0.0.1:9876"

# Answers upon which RocketMQ 4.9 tries another broker: SYSTEM_ERROR, SERVICE_NOT_AVAILABLE, NO_PERMISSION,
# TOPIC_NOT_EXIST, NO_BUYER_ID, NOT_IN_CURRENT_UNIT. SYSTEM_BUSY (2) is not among them; 5.x adds it.
RETRY_CODES = frozenset({1, 14, 16, 17, 204, 205})

Config = TypeVar("Config", bound="ClientConfig")


class ConsumeFrom(enum.Enum):
    """Where a group starts on a queue for which no offset is stored."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(enum.Enum):
    """Whether the members of a group share the messages of a topic, or each member gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of producers and consumers alike."""

    namesrv: str | tuple[str, ...] = ""
    """`host:port;host:port`. Empty: the environment's NAMESRV_ADDR, else 127.0.0.1:9876."""
    instance_name: str = ""
    """Part of the client id; empty: generated, so that each client is a group member of its own."""
    unit_name: str = ""
    namespace: str = ""
    """Prefix of topics and groups on the wire; users do not see it."""
    vip_channel: bool = False
    """Use the broker's port minus two for everything but pulls."""
    header_type: int = 0
    """How headers are written: 0 JSON, 1 ROCKETMQ binary, 2 msgpack (only Rocketlet's own servers read it)."""
    tls: bool = False
    """Connect by TLS. False: as the environment's ROCKETLET_TLS says, with the files that ROCKETLET_TLS_CA_FILE,
    _CERT_FILE, _KEY_FILE and _SERVER_NAME name."""
    tls_ca_file: str = ""
    """Certificates to trust. Empty with `tls`: none is verified, as RocketMQ's clients do by default."""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_server_name: str = ""
    """The name that the server's certificate must bear; empty: it is not compared."""
    access_key: str = ""
    """Account for brokers with access control; requests are signed with `secret_key`. Empty: that of the environment's
    ROCKETLET_ACCESS_KEY and ROCKETLET_SECRET_KEY, if there is one."""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    """For routes, heartbeats, locks and other small requests."""
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    idle_timeout: float = 120.0
    """A connection without traffic for this long is closed."""
    max_frame: int = 16 << 20
    """The largest answer that is taken; the broker's own limit."""
    max_inflated_size: int = 64 << 20
    """What one compressed body may unfold into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of producers."""

    send_timeout: float = 3.0
    """Over all tries of one send."""
    try_timeout: float | None = None
    """For one try; None: whatever remains of `send_timeout`, as in RocketMQ."""
    retries: int = 2
    """Further tries after the first, each on another broker where there is one."""
    retry_codes: frozenset[int] = RETRY_CODES
    retry_when_not_stored_safely: bool = False
    """Try another broker also when a send was stored but its flush or its replica timed out (retryAnotherBroker...)."""
    compress_over: int = 4096
    """Bodies larger than this leave as zlib, unless that makes them larger."""
    compress_level: int = 5
    max_message_size: int = MAX_MESSAGE_SIZE
    default_topic: str = topics.DEFAULT_TOPIC
    """The topic whose settings a new topic gets (createTopicKey)."""
    default_topic_queues: int = 4
    latency_faults: bool = False
    """Avoid brokers that were slow or failed (sendLatencyFaultEnable)."""
    latencies_ms: tuple[int, ...] = DEFAULT_LATENCIES_MS
    avoidances_ms: tuple[int, ...] = DEFAULT_AVOIDANCES_MS
    max_in_flight: int = 1024
    """Most sends in flight; a blocking call then waits, an awaitable `send_soon` raises TooManyInFlight."""
    max_bytes_in_flight: int = 8 << 20
    """Bytes of message bodies in flight; further sends wait. A larger message is sent alone."""
    batching: bool = True
    """Whether sends that wait for a busy queue leave together as one batch."""
    linger: float = 0.0
    """Seconds that a send to an idle queue waits on purpose for others to leave with."""
    trace: bool = False
    """Leave a trace of each message in `trace_topic`."""
    trace_topic: str = topics.TRACE_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of all consumers."""

    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    consume_timestamp: int = 0
    """Milliseconds since 1970 for ConsumeFrom.TIMESTAMP; 0: half an hour before the start."""
    allocation: Allocation = averagely
    rebalance_interval: float = 20.0
    persist_interval: float = 5.0
    """How often offsets are committed; they are committed at the end too."""
    pull_batch: int = 32
    pull_timeout: float = 30.0
    """Time-out of a pull, which the broker may hold."""
    queue_max_messages: int = 1000
    """Pulled but not consumed messages of one queue at which pulling pauses (pullThresholdForQueue)."""
    queue_max_bytes: int = 100 << 20
    topic_max_messages: int = -1
    """The same for all own queues of a topic together; -1: no limit."""
    topic_max_bytes: int = -1
    max_bytes: int = 512 << 20
    """The same for all queues of this consumer; RocketMQ has no such bound."""
    offset_directory: str = ""
    """Where a broadcasting consumer keeps its offsets; empty: `~/.rocketmq_offsets`."""
    max_reconsume_times: int = -1
    """Tries before a message becomes a dead letter; -1: 16, or no limit for an orderly consumer."""
    unit_mode: bool = False
    trace: bool = False
    trace_topic: str = topics.TRACE_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig(ConsumerConfig):
    """Settings of push consumers."""

    orderly: bool = False
    """One message of a queue at a time, in order, under the broker's lock."""
    threads: int = 20
    """Most listeners running at the same time (consumeThreadMax)."""
    batch: int = 1
    """Most messages in one call of a batch listener (consumeMessageBatchMaxSize)."""
    consume_timeout: float = 900.0
    """A message that a listener keeps for longer is sent back for another try."""
    max_span: int = 2000
    """Distance between the first and the last open offset of a queue at which pulling pauses (concurrent only)."""
    suspend: float = 1.0
    """How long an orderly queue stops after a failure."""
    poll_timeout: float = 15.0
    """How long the broker may hold a pull that finds nothing."""
    pull_interval: float = 0.0
    post_subscription_when_pull: bool = False
    shutdown_timeout: float = 30.0
    """How long shutdown waits for running listeners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig(ConsumerConfig):
    """Settings of lite pull and pull consumers."""

    auto_commit: bool = True
    poll_timeout: float = 20.0
    buffered_messages: int = 10_000
    """Messages pulled ahead of `poll`, over all queues (pullThresholdForAll)."""
    max_span: int = 2000
    topic_interval: float = 30.0
    """How often new queues of a topic are looked for, for `on_queues_changed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConfig(ConsumerConfig):
    """Settings of simple consumers."""

    invisible: float = 30.0
    """How long a received message is nobody else's, unless `receive` says otherwise."""
    orderly: bool = False
    """Messages of one sharding key, and those without any, one consumer at a time and in order."""


def is_true(text: str) -> bool:
    """Whether a variable of the environment switches something on."""
    return text.strip().lower() in ("true", "1", "yes", "on")


def configured(
    kind: type[Config],
    config: Config | None,
    namesrv: str | None,
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
) -> Config:
    """The config of a client from the arguments of its constructor. Raises InvalidUse where a setting does not
    exist."""
    names = [field.name for field in fields(kind)]
    for name in settings:
        if name not in names:
            similar = ", ".join(difflib.get_close_matches(name, names)) or ", ".join(names)
            raise InvalidUse(f"there is no setting {name}", advice=f"did you mean {similar}?")
    if config is not None and not isinstance(config, kind):
        raise InvalidUse(f"the config is of type {type(config).__name__}", advice=f"give a {kind.__name__}")
    if namesrv is not None:
        settings = {**settings, "namesrv": namesrv}
    result = replace(config or kind(), **settings)
    for setting in fields(result):
        _check(setting.name, getattr(result, setting.name), setting.default)
    if not result.namesrv:
        result = replace(result, namesrv=environ.get(NAMESRV_VARIABLE) or DEFAULT_NAMESRV)
    if not result.access_key and environ.get(ACCESS_KEY_VARIABLE) and environ.get(SECRET_KEY_VARIABLE):
        result = replace(result, access_key=environ[ACCESS_KEY_VARIABLE], secret_key=environ[SECRET_KEY_VARIABLE])
    if not result.tls and is_true(environ.get(TLS_VARIABLE, "")):
        tls_files: Any = {name: environ[variable] for name, variable in TLS_VARIABLES.items() if environ.get(variable)}
        result = replace(result, tls=True, **tls_files)
    if bool(result.access_key) != bool(result.secret_key):
        raise InvalidUse("access_key and secret_key are needed together", advice="give both, or none")
    return result


# The minimum of a setting; all other numbers must be greater than 0.
_MAY_BE_NONE = {"try_timeout": 1.0}
_LEAST = {
    **dict.fromkeys(("topic_max_messages", "topic_max_bytes", "max_reconsume_times"), -1),
    **dict.fromkeys(("header_type", "retries", "compress_over", "compress_level", "consume_timestamp", "max_span"), 0),
    **dict.fromkeys(("suspend", "poll_timeout", "pull_interval", "shutdown_timeout", "linger"), 0),
}
_MOST = {"header_type": 2, "compress_level": 9, "threads": 10_000, "default_topic_queues": 65_536}
_MAX_SECONDS = 1e9


def _check(name: str, value: Any, default: Any) -> None:
    """Raises InvalidUse for a value that cannot be one of this setting."""
    if name in _MAY_BE_NONE:
        if value is None:
            return
        default = _MAY_BE_NONE[name]
    if isinstance(default, float):
        fits = type(value) in (int, float) and (value > 0 or value == _LEAST.get(name)) and value < _MAX_SECONDS
    elif type(default) is int:
        fits = type(value) is int and _LEAST.get(name, 1) <= value <= _MOST.get(name, 1 << 62)
    elif name == "namesrv":
        fits = isinstance(value, (str, tuple, list)) and all(isinstance(address, str) for address in value)
    elif name == "allocation":
        fits = callable(value)
    elif isinstance(default, (frozenset, tuple)):
        fits = isinstance(value, (set, frozenset, tuple, list)) and all(type(number) is int for number in value)
    else:
        fits = isinstance(value, type(default))
        if fits and isinstance(value, str):
            check_text(f"setting {name}", value)
    if not fits:
        kind = "a number that can be used there" if isinstance(default, (int, float)) else f"a {type(default).__name__}"
        if isinstance(default, bool):
            kind = "True or False"
        raise InvalidUse(f"the setting {name} is {value!r}", advice=f"it must be {kind}, such as {default!r}")


def name_servers(namesrv: str | tuple[str, ...]) -> tuple[str, ...]:
    """The single addresses of `host:port;host:port`. Raises InvalidUse for what is no address."""
    words = namesrv.replace(",", ";").split(";") if isinstance(namesrv, str) else list(namesrv)
    addresses = tuple(word.strip().removeprefix("http://") for word in words if word.strip())
    if not addresses:
        raise InvalidUse("no name server is given", advice="pass namesrv='host:9876' or set NAMESRV_ADDR")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) <= 65535:
            raise InvalidUse(f"the name server {address!r} is no host:port", advice="several are joined by ';'")
    return addresses
