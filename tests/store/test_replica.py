"""A store that follows another's bytes: the same log, queues, index and pulls, however the bytes are divided."""

from __future__ import annotations

from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message_flags import COMMIT, PREPARED, ROLLBACK
from rocketlet.store.config import StoreConfig
from rocketlet.store.errors import DiskFull, Following
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import NoRecord, Replica
from tests.support.store_model import ROOT, StoreModel, message, small_config

CONFIG = small_config()
LARGER = small_config(mapped_file_size_commit_log=1 << 15)  # its files hold enough records to be dispatched together
CONFIGS = st.sampled_from([CONFIG, LARGER])


def filled(seed: int, count: int = 60, config: StoreConfig = CONFIG) -> StoreModel:
    """A store with messages of every kind, over several log files."""
    model, random = StoreModel(config), Random(seed)
    for number in range(count):
        topic = random.choice(["TopicA", "TopicB", "%RETRY%group"])
        body = bytes(random.randrange(300))
        kind = random.choice([0, 0, 0, PREPARED, COMMIT, ROLLBACK])
        model.put(message(topic, number % 2, body, (b"k%d" % (number % 7),), b"TagA", sys_flag=kind))
    model.store.settle()
    return model


def log_bytes(store: MessageStore) -> bytes:
    return b"".join(bytes(view) for _, view in store.log.file_views())


async def opened(disk: MemoryDisk, config: StoreConfig = CONFIG) -> MessageStore:
    store = MessageStore(disk, config, lambda: 0, on_progress=lambda _: None)
    await store.open()
    return store


def no_bits(topic: str, properties: bytes) -> bytes:
    return b""


def feed(replica: Replica, data: bytes, random: Random) -> None:
    """Feed bytes in arbitrary pieces, but not across the end of a file; filed after each piece, or after several."""
    at = 0
    while at < len(data):
        size = min(random.choice([1, 7, 50, 200, 1000, 5000, 1 << 20]), len(data) - at, replica.room_in_file())
        replica.write(data[at : at + size])
        at += size
        if random.random() < 0.5:
            replica.file()
    replica.file()


@given(seed=st.integers(0, 1 << 32), config=CONFIGS)
def test_a_replicas_files_are_identical_byte_for_byte(seed: int, config: StoreConfig) -> None:
    model, disk, random = filled(seed, 60 if config is CONFIG else 200, config), MemoryDisk(page_size=128), Random(seed)

    async def run() -> None:
        master = model.store
        slave = await opened(disk, config)
        replica = slave.follow(no_bits)
        feed(replica, log_bytes(master), random)
        assert slave.log.end == master.log.end == slave.dispatched.value == slave.appended.value
        await slave.close()
        await master.close()

    trio.run(run)
    ours, theirs = disk.files(), model.disk.files()
    for path, content in theirs.items():
        if path.startswith((f"{ROOT}/commitlog", f"{ROOT}/consumequeue")):
            assert ours.pop(path) == content, path
    assert not [path for path in ours if path.startswith((f"{ROOT}/commitlog", f"{ROOT}/consumequeue"))]
    model.disk = disk
    model.open()  # the slave's directory, compared with the list of what was put: queues, index, pulls


@given(seed=st.integers(0, 1 << 32), cut=st.floats(0, 1))
def test_a_partial_record_is_invisible_and_dropped_when_the_store_leads(seed: int, cut: float) -> None:
    model, random = filled(seed, 20), Random(seed)

    async def run() -> None:
        data = log_bytes(model.store)
        upto = int(len(data) * cut)
        slave = await opened(MemoryDisk(page_size=128))
        replica = slave.follow(no_bits)
        feed(replica, data[:upto], random)
        ends = [0, *(one.at.end for one in model.kept), *(f.end for f in model.store.log.files.files)]
        whole = max(end for end in ends if end <= upto)
        assert slave.log.end in (whole, max((o.at.end for o in model.kept if o.at.end <= upto), default=0))
        slave._set_full(DiskFull("no space"))
        slave._set_full(None)  # there is space again, but it still follows
        with pytest.raises(Following):
            slave.put(message("T", 0, b"x"))
        rest = upto - slave.log.end
        assert slave.lead(replica) == rest
        file = slave.log.files.find(slave.log.end)
        assert file is None or not any(file.buffer[slave.log.end - file.begin :])
        ends_before = {(queue.topic, queue.queue_id): queue.end for queue in slave.queues}
        put = slave.put(message("TopicA", 1, b"mine"))
        slave.settle()
        assert put.queue_offset == ends_before.get(("TopicA", 1), 0)
        assert slave.get("TopicA", 1, put.queue_offset, 1).count == 1

    trio.run(run)


def test_a_replica_may_begin_at_a_later_file_as_may_its_queues() -> None:
    model = filled(3)

    async def run() -> None:
        slave = await opened(MemoryDisk(page_size=128))
        replica = slave.follow(no_bits)
        first = model.store.log.files.files[-2].begin
        replica.begin_at(first)
        data = log_bytes(model.store)[first:]
        feed(replica, data, Random(1))
        assert slave.log.begin == first
        for one in model.kept:
            if one.has_entry and one.at.log_offset >= first:
                queue = slave.queue(one.put.topic, one.put.queue_id)
                assert queue is not None
                assert queue.entry(one.at.queue_offset) == (one.at.log_offset, one.at.size, one.put.tags_code)

    trio.run(run)


async def test_an_invalid_record_is_refused_and_nothing_of_it_kept() -> None:
    master, slave = await opened(MemoryDisk(page_size=128)), await opened(MemoryDisk(page_size=128))
    master.put(message("TopicA", 0, b"hello"))
    replica = slave.follow(no_bits)
    replica.append(log_bytes(master))
    end = slave.log.end
    for garbage in (b"\xff" * 64, b"\0\0\0\1" + b"\xda\xa3\x20\xa7" + bytes(90), b"\x7f" + bytes(120)):
        with pytest.raises(NoRecord, match=f"log offset {end}"):
            replica.append(garbage)
        assert replica.end == slave.log.end == end
        file = slave.log.files.find(end)
        assert file is not None
        assert not any(file.buffer[end - file.begin :])


@pytest.mark.parametrize("count", [3, 40])
async def test_a_queue_restarted_at_the_master_restarts_at_the_replica(count: int) -> None:
    master = await opened(MemoryDisk(page_size=128), LARGER)
    for number in range(count):
        master.put(message("TopicA", 0, b"old %d" % number))
    master.settle()
    master.drop_topic("TopicA")
    for _ in range(count):
        master.put(message("TopicA", 0, b"new"))
    master.settle()
    slave = await opened(MemoryDisk(page_size=128), LARGER)
    slave.follow(no_bits).append(log_bytes(master))
    assert slave.queue_end("TopicA", 0) == count
    assert b"new" in slave.get("TopicA", 0, 0, 10).body()


@given(seed=st.integers(0, 1 << 32), config=CONFIGS)
def test_unconfirmed_records_are_not_dispatched(seed: int, config: StoreConfig) -> None:
    model, random = filled(seed, 80, config), Random(seed)

    async def run() -> None:
        slave = MessageStore(MemoryDisk(page_size=128), config, lambda: 0, on_progress=lambda _: None)
        slave.hold_unconfirmed()
        await slave.open()
        feed(slave.follow(no_bits), log_bytes(model.store), random)
        ends = [one.at.end for one in model.kept]
        for end in sorted(random.choices(range(ends[-1] + 1), k=9)):
            slave.confirm(end, slave.settle)
            assert slave.dispatched.value == max((one for one in ends if one <= end), default=0)
        slave.confirm(ends[-1], slave.settle)
        assert slave.dispatched.value == ends[-1]
        for one in model.kept:
            if one.has_entry:
                queue = slave.queue(one.put.topic, one.put.queue_id)
                assert queue is not None
                assert queue.entry(one.at.queue_offset) == (one.at.log_offset, one.at.size, one.put.tags_code)
        assert slave.index.statistics() == model.store.index.statistics()

    trio.run(run)


@pytest.mark.parametrize(("config", "most"), [(CONFIG, 300), (LARGER, 300), (LARGER, 12_000)])
async def test_a_full_disk_stops_a_replica_until_there_is_room(config: StoreConfig, most: int) -> None:
    master = await opened(MemoryDisk(page_size=128), config)
    for number in range(40 if most == 300 else 400):
        master.put(message("TopicA", number % 2, b"x" * 200, (b"k%d" % number,)))
    master.settle()
    disk = MemoryDisk(page_size=128)
    slave = await opened(disk, config)
    disk.capacity = disk.statistics().reserved_bytes + 4000
    replica, data, at = slave.follow(no_bits), log_bytes(master), 0
    full = 0
    while at < len(data):
        size = min(most, len(data) - at, replica.room_in_file())
        try:
            replica.append(data[at : at + size])
        except DiskFull:
            full += 1
            assert disk.capacity is not None
            disk.capacity += 2000
        at = replica.end
    assert full > 2
    assert log_bytes(slave) == data
    assert slave.dispatched.value == master.dispatched.value
