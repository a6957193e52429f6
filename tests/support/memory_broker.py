"""A whole broker in memory: no ports, no files, in virtual time if the test asks for the clock.

    async with memory_broker() as one:
        answer = await one.send("T", b"hello", TAGS="A")
        found = await one.pull("T", 0, 0)
        assert [record.body for record in found.records] == [b"hello"]

`memory_broker(disk=one.disk.copy())` is a restart after `kill -9`; leaving the block stops it in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from rocketlet.access.folder import Folder
from rocketlet.broker.broker import Broker
from rocketlet.broker.configs import BROKER_CONFIGS
from rocketlet.common import message_properties
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import Loaded
from rocketlet.common.message_record import Record
from rocketlet.common.settings import settings_of
from rocketlet.common.subscription import parse_tags
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.header import Header, to_ext
from rocketlet.remoting.protocol.membership import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.records import decode_all
from tests.support.virtual_time import START_MS

ROOT = "store"
NAME = "broker-a"
SMALL_STORE = {
    "store_path_root_dir": ROOT,
    "mapped_file_size_commit_log": 1 << 18,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "max_message_size": 1 << 16,
}


def loaded_settings(**settings: object) -> Loaded:
    """Settings of a broker by the names of their fields, whichever dataclass has them."""
    # Real time goes on in a test of virtual time: a machine that stood still would have requests refused as stale.
    values_by_field = {"broker_name": NAME, "broker_fast_failure_enable": False, **SMALL_STORE, **settings}
    configs = []
    for config_type in BROKER_CONFIGS:
        own_settings = {setting.field: setting for setting in settings_of(config_type)}
        values = {
            name: own_settings[name].parse(text) if isinstance(text, str) else text
            for name, text in values_by_field.items()
            if name in own_settings
        }
        configs.append(config_type(**values))
    known_fields = {setting.field for config in configs for setting in settings_of(type(config))}
    assert values_by_field.keys() <= known_fields, values_by_field.keys() - known_fields
    return Loaded(
        tuple(configs), {setting.key: "default" for config in configs for setting in settings_of(type(config))}
    )


@dataclass
class Pulled:
    """The answer to a pull."""

    code: int
    ext: Mapping[str, str]
    remark: str | None
    records: list[Record]


@dataclass
class Client:
    """One connection to the broker; `heard` are the broker's requests on it."""

    pool: ConnectionPool
    address: str
    heard: list[Any] = field(default_factory=list)
    unique: int = 0

    async def call(
        self,
        code: int,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout: float = 40.0,
        **command: Any,
    ) -> Command:
        ext = to_ext(header) if isinstance(header, Header) else dict(header) if header is not None else None
        return await self.pool.call(self.address, Command(int(code), ext=ext, body=body, **command), timeout)

    async def send(
        self,
        topic: str,
        body: bytes = b"body",
        queue_id: int = 0,
        *,
        fields: Mapping[str, Any] | None = None,
        **properties: str,
    ) -> Command:
        self.unique += 1
        properties.setdefault("UNIQ_KEY", f"{self.unique:032X}")
        header_fields: dict[str, Any] = {
            "queueId": queue_id,
            "topic": topic,
            "producerGroup": "PG",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "bornTimestamp": START_MS,
            "properties": message_properties.encode(properties),
        }
        header = SendMessageHeaderV2(**(header_fields | dict(fields or {})))
        return await self.call(RequestCode.SEND_MESSAGE_V2, header, body)

    async def pull(self, topic: str, queue_id: int, offset: int, **fields: Any) -> Pulled:
        header_fields: dict[str, Any] = {
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "topic": topic,
            "consumerGroup": "CG",
            "sysFlag": SUBSCRIPTION,
            "subscription": "*",
        }
        answer = await self.call(RequestCode.PULL_MESSAGE, PullMessageHeader(**(header_fields | fields)))
        records = decode_all(bytes(answer.body)) if answer.code == 0 else []
        return Pulled(answer.code, answer.ext or {}, answer.remark, records)

    async def heartbeat(
        self,
        client_id: str,
        group: str = "",
        *subscriptions: SubscriptionData,
        producer: str = "",
        model: str = "CLUSTERING",
    ) -> Command:
        consumers = [ConsumerData(group, subscriptionDataSet=list(subscriptions), messageModel=model)] if group else []
        data = HeartbeatData(client_id, [ProducerData(producer)] if producer else [], consumers)
        return await self.call(RequestCode.HEART_BEAT, None, data.to_json())


@dataclass
class RunningBroker(Client):
    """The broker, with a first client."""

    @property
    def bound(self) -> str:
        """The address it listens on, whatever address clients get."""
        return self.address

    broker: Broker = None  # type: ignore[assignment]
    disk: MemoryDisk = None  # type: ignore[assignment]
    network: MemoryNetwork = None  # type: ignore[assignment]

    @asynccontextmanager
    async def client(self, handlers: HandlerTable | None = None) -> AsyncIterator[Client]:
        """Another connection."""
        async with ConnectionPool(self.network, PoolConfig(), handlers or {}) as pool:
            yield Client(pool, self.address)


@asynccontextmanager
async def memory_broker(
    *,
    disk: MemoryDisk | None = None,
    network: MemoryNetwork | None = None,
    start_ms: int = START_MS,
    faults: Faults | None = None,
    accounts: Folder | None = None,
    **settings: object,
) -> AsyncIterator[RunningBroker]:
    """A broker that runs until the block ends. `settings` by field name, `start_ms` its wall clock at the begin."""
    disk, network = disk or MemoryDisk(), network or MemoryNetwork()
    broker = Broker(
        loaded_settings(**settings),
        network,
        disk,
        clock=TrioWallClock(start_ms),
        rng=Random(7),
        faults=faults,
        accounts=accounts,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        config = broker.settings.now
        bound = f"{config.bind_address}:{broker.identity.address.rpartition(':')[2]}"
        async with ConnectionPool(network, PoolConfig()) as pool:
            yield RunningBroker(pool, bound, broker=broker, disk=disk, network=network)
        nursery.cancel_scope.cancel()


def tags(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    """A subscription by tags."""
    parsed = parse_tags(topic, expression, version)
    return SubscriptionData(topic, parsed.expression, sorted(parsed.tags), sorted(parsed.codes), version)


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    """A subscription by an SQL92 expression."""
    return SubscriptionData(topic, expression, subVersion=version, expressionType="SQL92")
