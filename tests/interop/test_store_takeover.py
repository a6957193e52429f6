"""A directory passed from a Java broker to our store and back, after a close and after a kill: nothing acknowledged is
lost.

Files are small, so that there are several of each kind; every message is compared, by queue and by key, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rocketlet.common.clock import system_clock
from rocketlet.common.java_numbers import string_hash
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from rocketlet.store.check import check
from rocketlet.store.config import StoreConfig
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.recovery import RecoveryReport
from tests.support.java_programs import JavaBroker, JavaPrograms
from tests.support.memory_broker import Client
from tests.support.programs import name_server
from tests.support.records import decode_all

pytestmark = pytest.mark.interop

SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 32768,
}
TOPIC = "TakeOver"
QUEUES = 3
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))

Sent = dict[tuple[int, int], tuple[bytes, str]]  # queue id and offset: body, key


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with name_server(tmp_path_factory.mktemp("namesrv")) as (_, address):
        yield address


def settings_of(folder: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=str(folder / "store"),
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=1000,
        max_hash_slot_num=100,
        max_index_num=400,
        max_message_size=32768,
    )


async def send_to_java(address: str, sent: Sent, count: int, what: str) -> None:
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        client = Client(pool, address, unique=len(sent))
        for number in range(count):
            body = f"{what} {number} ".encode() * (1 + number % 40)
            key = f"{what}-{number}"
            answer = await client.send(TOPIC, body, number % QUEUES, KEYS=key, TAGS="TagA" if number % 2 else "订单")
            assert answer.code == 0
            assert answer.ext is not None
            sent[int(answer.ext["queueId"]), int(answer.ext["queueOffset"])] = (body, key)


async def assert_java_has(address: str, sent: Sent) -> None:
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        client = Client(pool, address)
        for queue_id in range(QUEUES):
            wanted = {offset: one for (queue, offset), one in sent.items() if queue == queue_id}
            offset, found = 0, {}
            while offset < max(wanted) + 1:
                pulled = await client.pull(TOPIC, queue_id, offset, subVersion=1)
                assert pulled.code in (0, 20), pulled
                found.update({record.queue_offset: record.body for record in pulled.records})
                assert int(pulled.ext["nextBeginOffset"]) > offset
                offset = int(pulled.ext["nextBeginOffset"])
            assert found == {offset: body for offset, (body, _) in wanted.items()}
        for body, key in list(sent.values())[:: max(len(sent) // 40, 1)]:
            fields = {"topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 50}
            ext = {name: str(value) for name, value in fields.items()}
            answer = await client.call(RequestCode.QUERY_MESSAGE, ext)
            assert answer.code == 0, (key, answer.remark)
            assert body in [record.body for record in decode_all(bytes(answer.body))]


async def opened(config: StoreConfig) -> tuple[MessageStore, RecoveryReport]:
    store = MessageStore(RealDisk(), config, system_clock, on_progress=lambda _: None)
    return store, await store.open()


def assert_we_have(store: MessageStore, sent: Sent) -> None:
    for queue_id in range(QUEUES):
        wanted = {offset: body for (queue, offset), (body, _) in sent.items() if queue == queue_id}
        offset, found = 0, {}
        while (result := store.get(TOPIC, queue_id, offset, 32)).count:
            found.update({record.queue_offset: record.body for record in decode_all(result.body())})
            offset = result.next_offset
        assert found == wanted
    for body, key in sent.values():
        records = store.find_by_key(TOPIC, key, 32, 0, 1 << 62).records
        assert body in [record.body for _, raw in records for record in decode_all(raw)]


async def put_ours(config: StoreConfig, sent: Sent, count: int, what: str) -> RecoveryReport:
    """Our store opens the directory, appends, and closes it."""
    store, report = await opened(config)
    assert_we_have(store, sent)
    for number in range(count):
        body, key = f"{what} {number} ".encode() * (1 + number % 40), f"{what}-{number}"
        unique = b"%032X" % (1 << 60 | number)
        properties = b"UNIQ_KEY\x01%b\x02KEYS\x01%b\x02TAGS\x01TagA" % (unique, key.encode())
        put = Put(TOPIC, number % QUEUES, body, properties, string_hash("TagA"), (unique, key.encode()))
        put.born_timestamp, put.born_host, put.store_host = system_clock(), HOST, HOST
        found = store.put(put)
        sent[put.queue_id, found.queue_offset] = (body, key)
        store.settle()
    assert_we_have(store, sent)
    await store.close()
    return report


def is_sound(config: StoreConfig) -> None:
    report = check(RealDisk(), config, lambda _: None)
    assert report.is_sound, report.lines()


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_store_passes_to_java_and_back_twice(java: JavaPrograms, namesrv: str, tmp_path: Path, killed: bool) -> None:
    sent: Sent = {}
    config = settings_of(tmp_path)

    def leave(broker: JavaBroker) -> None:
        (broker.kill if killed else broker.stop)()

    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(send_to_java, broker.address, sent, 300, "java")
        leave(broker)
    report = trio.run(put_ours, config, sent, 300, "ours")
    assert report.was_clean is not killed
    assert not report.losses
    # Java dispatches a message some time after answering, so a killed one may leave the last ones to us.
    assert killed or not report.queues
    assert not any(finding.surplus for finding in report.queues)
    is_sound(config)
    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(assert_java_has, broker.address, sent)
        trio.run(send_to_java, broker.address, sent, 200, "java-again")
        trio.run(assert_java_has, broker.address, sent)
        leave(broker)
    trio.run(put_ours, config, sent, 100, "ours-again")
    is_sound(config)
    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(assert_java_has, broker.address, sent)


def test_java_reads_what_we_left_after_a_kill(java: JavaPrograms, namesrv: str, tmp_path: Path) -> None:
    """Our directory as left by a killed process: with abort, an older checkpoint, and no close."""
    sent: Sent = {}
    config = settings_of(tmp_path)
    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(send_to_java, broker.address, sent, 30, "java")
        broker.stop()

    async def leave_open() -> None:
        store, _ = await opened(config)
        for number in range(300):
            key = f"killed-{number}"
            put = Put(TOPIC, number % QUEUES, key.encode() * 9, b"KEYS\x01" + key.encode(), 0, (key.encode(),))
            put.born_host, put.store_host = HOST, HOST
            found = store.put(put)
            sent[put.queue_id, found.queue_offset] = (key.encode() * 9, key)
            if number == 150:
                store.settle()
                await store._log_flush.flush_once()
                await store._thorough.save()
        store.settle()
        assert store._lock is not None
        store._lock.release()  # the process ends here

    trio.run(leave_open)
    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(assert_java_has, broker.address, sent)
        broker.stop()
    trio.run(put_ours, config, sent, 10, "ours")
    is_sound(config)


def test_java_opens_a_store_we_repaired(java: JavaPrograms, namesrv: str, tmp_path: Path) -> None:
    sent: Sent = {}
    config = settings_of(tmp_path)
    with java.broker(tmp_path, namesrv, **SMALL) as broker:
        trio.run(send_to_java, broker.address, sent, 300, "java")
        broker.stop()
    path = tmp_path / "store/commitlog/00000000000000065536"
    content = bytearray(path.read_bytes())
    content[3000:3020] = b"damaged by something"
    path.write_bytes(bytes(content))

    async def heal() -> None:
        store, report = await opened(config)
        assert len(report.losses) == 1
        await store.close()

    trio.run(heal)
    is_sound(config)
    (tmp_path / "store/abort").touch()  # so that Java reads the whole log
    with java.broker(tmp_path, namesrv, **SMALL) as broker:

        async def pull_all() -> list[tuple[int, int]]:
            wrong = []
            async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
                client = Client(pool, broker.address)
                for (queue_id, offset), (body, _) in sent.items():
                    pulled = await client.pull(TOPIC, queue_id, offset, maxMsgNums=1, subVersion=1)
                    if [record.body for record in pulled.records] != [body]:
                        wrong.append((queue_id, offset))
            return wrong

        assert len(trio.run(pull_all)) == 1
