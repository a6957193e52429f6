"""What Spark rebuilds equals what our own store writes and recovers, byte for byte, and a broker continues from it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.host import pack_host
from rocketlet.common.message_flags import COMMIT, PREPARED, ROLLBACK
from rocketlet.common.message_properties import index_keys
from rocketlet.common.message_record import Fault, Record, encode, outline
from rocketlet.common.subscription import tags_code
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.spark_jobs.index_segments import UNIT, Rules
from rocketlet.spark_jobs.uneven_queue import uneven_queue
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.layout.index_layout import IndexGeometry
from rocketlet.store.log_walk import Found
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.rebuild_queues import QueueRebuild
from rocketlet.store.recovery import RecoveryReport
from tests.spark_jobs.test_index_writer import files_below, index_contents
from tests.support.records import decode_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000


def config_of(root: Path, log: Path | None = None) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=str(root),
        store_path_commit_log=str(log or root / "commitlog"),
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=1000,
        max_hash_slot_num=100,
        max_index_num=400,
    )


RULES = Rules(50, IndexGeometry(100, 400))


def messages(count: int, seed: int) -> list[Put]:
    """All kinds of messages: many topics and queues, delays, transactions, no keys, IPv6, large and empty bodies."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        properties = b"UNIQ_KEY\x01%032X" % number if chance.random() < 0.8 else b"COLOUR\x01blue"
        if chance.random() < 0.5:
            properties += b"\x02KEYS\x01k%d  w%d %s" % (number % 7, number, "ключ".encode())
        tag = chance.choice([b"", b"TagA", b"refund", "订单".encode()])
        if tag:
            properties += b"\x02TAGS\x01" + tag
        topic, queue_id = f"Topic{chance.randrange(3)}", chance.randrange(2)
        if chance.random() < 0.1:
            level = chance.choice([1, 3, 18])
            topic, queue_id = SCHEDULE_TOPIC, level - 1
            properties += b"\x02DELAY\x01%d" % level
        made.append(
            Put(
                topic, queue_id, chance.randbytes(chance.choice([0, 10, 300, 5000])), properties, tags_code(tag),
                index_keys(properties), chance.randrange(100), chance.choice([0, 0, 0, 0, COMMIT, PREPARED, ROLLBACK]),
                START, pack_host("::1", 5) if chance.random() < 0.1 else pack_host("127.0.0.1", 5),
                pack_host("127.0.0.1", 10911),
            )
        )  # fmt: skip
    return made


def write_store(config: StoreConfig, puts: list[Put]) -> None:
    async def write() -> None:
        now = START
        store = MessageStore(RealDisk(), config, lambda: now)
        await store.open()
        for number, put in enumerate(puts):
            now += number % 5 * 700
            store.put(put)
            if number % 7 == 0:
                store.settle()
        store.settle()
        await store.close()

    trio.run(write)


def reopen(config: StoreConfig, look: Callable[[MessageStore], object]) -> RecoveryReport:
    async def run() -> RecoveryReport:
        store = MessageStore(RealDisk(), config, lambda: START)
        report = await store.open()
        look(store)
        await store.close()
        return report

    return trio.run(run)


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 7, pytest.param(40, marks=pytest.mark.slow)])
def test_spark_builds_the_files_our_store_builds(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    write_store(config_of(tmp_path / "store"), messages(900, partitions))
    report = rebuild_index(spark, str(tmp_path / "store"), str(tmp_path / "out"), RULES, partitions=partitions)
    assert report.damages == []
    assert len(list((tmp_path / "store/commitlog").iterdir())) > 10
    assert len(index_contents(tmp_path / "store")) > 3
    ours = dict(files_below(tmp_path / "store/consumequeue"))
    assert dict(files_below(tmp_path / "out/consumequeue")) == ours
    assert len(ours) > 10
    assert index_contents(tmp_path / "out") == index_contents(tmp_path / "store")
    assert names(tmp_path / "out/index") == names(tmp_path / "store/index")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.spark
def test_a_broker_continues_from_what_spark_built(spark: SparkSession, tmp_path: Path) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    puts = messages(600, 3)
    store = tmp_path / "store"
    write_store(config_of(store), puts)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    rebuild_index(spark, str(store), str(store), RULES, partitions=5)
    bodies: dict[tuple[str, int], list[bytes]] = {}
    for put in puts:
        if put.sys_flag in (0, COMMIT):
            bodies.setdefault((put.topic, put.queue_id), []).append(bytes(put.body))

    def look(opened: MessageStore) -> None:
        for (topic, queue_id), wanted in bodies.items():
            assert opened.queue_end(topic, queue_id) == len(wanted)
            # A consumer has an offset that it committed before the queues were lost.
            found = opened.get(topic, queue_id, len(wanted) // 2, 1)
            (record,) = decode_all(b"".join(bytes(piece) for piece in found.slices))
            assert (record.queue_offset, record.body) == (len(wanted) // 2, wanted[len(wanted) // 2])
        assert opened.find_by_key("Topic1", "k3", 64, 0, 1 << 62).records

    report = reopen(config_of(store), look)
    assert not report.queues, "recovery found nothing to correct in the queues"
    assert not report.index, "nor in the index"
    assert report.losses == []


@st.composite
def jumping_offsets(draw: st.DrawFn) -> list[int]:
    """Mostly the next offset; now and then a jump ahead or back."""
    offsets, following = [], draw(st.integers(0, 120))
    for _ in range(draw(st.integers(1, 60))):
        jump = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 7, -1, -30, 1 << 40]))
        following = max(following + jump, 0)
        offsets.append(following)
        following += 1
    return offsets


@given(jumping_offsets(), st.lists(st.integers(0, 60), max_size=4))
def test_an_uneven_queue_equals_our_recoverys(offsets: list[int], cuts: list[int]) -> None:
    log = bytearray()
    found: list[Found] = []
    units = []
    for offset in offsets:
        raw = encode(Record("T", 1, offset, len(log), b"x" * (offset % 5), b"TAGS\x01t", store_timestamp=START))
        record = outline(raw, 0, len(raw), False, len(log))
        assert not isinstance(record, Fault)
        found.append((len(log), record))
        units.append((offset, len(log), len(raw), tags_code(b"t")))
        log += raw
    import numpy as np

    with uneven_queue(np.split(np.array(units, UNIT), sorted(cuts)), 0) as queue_made:
        made = dict(queue_made.files(RULES))
    disk = MemoryDisk()
    config = config_of(Path("/store"))
    rebuild = QueueRebuild(ConsumeQueueTable(disk, config), 0, None, repair=True)
    rebuild.add(found, [b"t"] * len(found))
    rebuild.finish(trim=True)
    queue = next(iter(rebuild.touched))
    theirs = {file.begin // 1000: bytes(file.buffer) for file in queue.files.files}
    assert {number: data.ljust(1000, b"\0") for number, data in made.items()} == theirs


@pytest.mark.spark
def test_a_live_store_is_read_up_to_its_last_valid_record(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The store accepts messages while Spark reads; all earlier messages must be found, and no damage."""
    from rocketlet.spark_jobs.index_writer import IndexReport, rebuild_index
    from rocketlet.store.layout.consume_queue_entry import entries_of

    puts = messages(1500, 5)
    store_at, out = tmp_path / "store", tmp_path / "out"
    reports: list[IndexReport] = []

    async def live() -> None:
        store = MessageStore(RealDisk(), config_of(store_at), lambda: START)
        await store.open()
        for put in puts[:500]:
            store.put(put)
        store.settle()

        async def index() -> None:
            reports.append(
                await trio.to_thread.run_sync(
                    lambda: rebuild_index(spark, str(store_at), str(out), RULES, partitions=4)
                )
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(index)
            for put in puts[500:]:
                store.put(put)
                store.settle()
                await trio.sleep(0)
        await store.close()

    trio.run(live)
    (report,) = reports
    assert report.damages == []
    assert 500 <= report.records <= 1500
    assert "is open or was not closed: taken up to its good end" in capfd.readouterr().err
    whole = dict(files_below(store_at / "consumequeue"))
    for name, raw in files_below(out / "consumequeue"):
        units = [unit for unit in entries_of(raw).tolist() if unit != (0, 0, 0)]
        assert entries_of(whole[name]).tolist()[: len(units)] == units


def test_a_flipped_bit_in_a_queue_offset_does_not_inflate_the_queue() -> None:
    log = bytearray()
    found: list[Found] = []
    for offset in (0, 1, 1 << 40, 3):
        raw = encode(Record("T", 1, offset, len(log), b"x", store_timestamp=START))
        record = outline(raw, 0, len(raw), False, len(log))
        assert not isinstance(record, Fault)
        found.append((len(log), record))
        log += raw
    rebuild = QueueRebuild(ConsumeQueueTable(MemoryDisk(), config_of(Path("/store"))), 0, None, repair=True)
    rebuild.add(found, [b""] * len(found))
    rebuild.finish(trim=True)
    (queue,) = rebuild.touched
    assert queue.end == 4
