"""A broker's waiting parts over a store in memory, without network: delays, transactions, and their restarts.

    async with waiting(disk) as parts:
        parts.send("T", b"later", DELAY="3")
        await trio.sleep(10)
        assert parts.bodies("T") == [b"later"]

Leaving the block closes the store cleanly. For a kill take `disk.copy()`, for a power cut `disk.crash(random)`, before
that, and continue with what they return.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import trio

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.consumer_groups import Member
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.delay_offsets import DelayOffsets
from rocketlet.broker.delayed_delivery import DelayedDelivery
from rocketlet.broker.detours import Detours
from rocketlet.broker.half_messages import HalfMessages
from rocketlet.broker.identity import Identity
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import TopicTable
from rocketlet.broker.transaction_check import TransactionCheck
from rocketlet.common import fastjson, message_properties
from rocketlet.common.clock import TrioWallClock, WallClock
from rocketlet.common.host import pack_host
from rocketlet.common.message_record import Record, decode
from rocketlet.common.topic import HALF_TOPIC
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import ConnectionLost
from rocketlet.store.config import StoreConfig
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_store import MessageStore
from tests.support.virtual_time import START_MS

HOST = pack_host("127.0.0.1", 10911)
CLIENT = pack_host("127.0.0.1", 40000)
ROOT = "store"
DELAYS, OFFSETS = f"{ROOT}/config/delayOffset.json", f"{ROOT}/config/consumerOffset.json"


def no_bits(topic: str, properties: bytes) -> bytes:
    return b""


def small_config(**settings: object) -> StoreConfig:
    """Files that a test fills quickly."""
    defaults: dict[str, object] = {
        "store_path_root_dir": ROOT,
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 1000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "max_message_size": 1 << 15,
    }
    return StoreConfig(**(defaults | settings))  # type: ignore[arg-type]


class Producer:
    """The connection of a live producer of group P: records the checks it gets."""

    def __init__(self) -> None:
        self.checks: list[Command] = []
        self.lost = False

    def send_oneway(self, command: Command) -> None:
        if self.lost:
            raise ConnectionLost("the producer is gone")
        self.checks.append(command)


@dataclass
class WaitingParts:
    """The waiting parts of a broker, and a test's operations on them."""

    disk: MemoryDisk
    store: MessageStore
    clock: WallClock
    delays: DelayOffsets
    offsets: ConsumerOffsets
    delivery: DelayedDelivery
    identity: Identity
    halves: HalfMessages
    check: TransactionCheck
    producer: Producer
    detours: Detours
    born: int = 0

    def put(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Appended:
        """As a send: straight into its queue, or redirected by its properties. Not dispatched."""
        self.born += 1
        properties.setdefault("UNIQ_KEY", f"{self.born:032X}")
        raw = message_properties.encode(properties).encode()
        tags = properties.get("TAGS")
        message = Put(
            topic, queue_id, body, raw, ord(tags) if tags else 0, message_properties.index_keys(raw),
            born_timestamp=self.clock(), born_host=CLIENT, store_host=HOST,
        )  # fmt: skip
        if "TRAN_MSG" in properties:
            message = self.detours.half(message)
        elif "DELAY" in properties:
            message = self.detours.delayed(message)
        return self.store.put(message)

    def send(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Appended:
        appended = self.put(topic, body, queue_id, **properties)
        self.store.settle()
        return appended

    def prepare(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Appended:
        """The half message of a transaction of group P."""
        return self.send(topic, body, queue_id, TRAN_MSG="true", PGROUP="P", **properties)

    def commit(self, half: Appended, group: str = "P") -> Appended:
        ended = self.halves.commit(half.log_offset, half.queue_offset, group)
        self.store.settle()
        return ended

    def roll_back(self, half: Appended, group: str = "P") -> Appended:
        ended = self.halves.roll_back(half.log_offset, half.queue_offset, group)
        self.store.settle()
        return ended

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All records of a queue."""
        queue = self.store.queue(topic, queue_id)
        records = []
        for offset in range(queue.begin, queue.end) if queue is not None else ():
            entry = queue.entry(offset) if queue is not None else None
            raw = self.store.record_at(entry[0]) if entry is not None else None
            assert raw is not None
            records.append(decode(raw))
        return records

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic, queue_id)]

    def half_offsets(self) -> list[int]:
        return [record.queue_offset for record in self.records(HALF_TOPIC)]

    def save(self) -> None:
        """Write the tables, as the broker does every few seconds and when it stops."""
        self.disk.write_file(DELAYS, fastjson.dumps(self.delays.to_body()))
        self.disk.write_file(OFFSETS, fastjson.dumps(self.offsets.to_body()))


@asynccontextmanager
async def waiting(
    disk: MemoryDisk, clock: WallClock | None = None, *, deliver: bool = True, **settings: object
) -> AsyncIterator[WaitingParts]:
    """Open a store on this disk, recover, and run its waiting parts."""
    clock = clock or TrioWallClock(START_MS)
    store = MessageStore(disk, small_config(**settings), clock, on_progress=lambda line: None)
    await store.open()
    delays, offsets = DelayOffsets(), ConsumerOffsets()
    for table, path in ((delays, DELAYS), (offsets, OFFSETS)):
        data = disk.read_file(path)
        if data is not None:
            table.load(fastjson.loads(data))
    identity = Identity("broker-a", "DefaultCluster", 0)
    identity.settle("127.0.0.1:10911", "127.0.0.1:10912")
    levels = store.config.delay_level_count
    delivery = DelayedDelivery(store, delays, Statistics("c"), clock, store.settle, no_bits)
    settings = Settings(BrokerConfig())
    topics = TopicTable(settings, clock, lambda: None)
    halves = HalfMessages(store, topics, offsets, identity, clock, no_bits)
    producer, producers = Producer(), ProducerGroups()
    producers.register("P", Member(producer, "producer@1", "PYTHON", 409, clock()))  # type: ignore[arg-type]
    check = TransactionCheck(halves, producers, identity, settings, lambda: 72, clock, Random(1), store.settle)
    parts = WaitingParts(
        disk,
        store,
        clock,
        delays,
        offsets,
        delivery,
        identity,
        halves,
        check,
        producer,
        Detours(identity, settings, topics, SubscriptionGroups(settings, clock, lambda: None), levels, clock),
    )
    parts.halves.recover()
    store.settle()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        if deliver:
            await nursery.start(parts.delivery.run)
        yield parts
        nursery.cancel_scope.cancel()
    await store.flush()
    parts.save()
    await store.close()
