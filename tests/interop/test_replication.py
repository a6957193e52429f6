"""Masters and slaves as real processes, ours and RocketMQ's, killed under load: the logs stay identical.

For each pairing, several threads send while master and slave are killed with `kill -9` in turn and restarted. At the
end the slave's log equals the master's, the tables are equal, all messages are consumed from the slave without the
master, by our consumer and by RocketMQ's, and queues and index of both agree with their logs.

One round of kills; `REPLICATION_ROUNDS=10` makes more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketlet.client import Message, Producer, PullConsumer
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.command import Command
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from rocketlet.store.check import NOTE, check
from rocketlet.store.config import StoreConfig
from rocketlet.store.real_disk import RealDisk
from tests.support.java_programs import JavaBroker, JavaPrograms, Missing
from tests.support.ports import free_broker_port
from tests.support.programs import Program, name_server

pytestmark = [pytest.mark.slow]

TOPIC = "Copied"
FILE_SIZE = 1 << 20
SMALL = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "maxMessageSize": 100_000,
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "haSendHeartbeatInterval": 1000,
    "transactionCheckInterval": 2000,  # RocketMQ makes their topic, which ours has at once, at the first check
    "registerNameServerPeriod": 10_000,  # then a slave hears of its master; the least that RocketMQ takes
}
ROUNDS = int(os.environ.get("REPLICATION_ROUNDS", "1"))
WAIT_SECONDS = 300


@dataclass
class Ours:
    """Our broker as a process; its store is kept."""

    folder: Path
    namesrv: str
    port: int
    settings: dict[str, object]
    program: Program | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        given = {
            **SMALL,
            **self.settings,
            "listenPort": self.port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.folder / "store",
        }
        words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        self.program = Program("broker", words)
        self.program.line_with("boot success")

    def kill(self) -> None:
        if self.program is not None:
            self.program.kill()
            self._close()

    def stop(self) -> None:
        if self.program is not None:
            self.program.stop()
            self._close()

    def _close(self) -> None:
        assert self.program is not None
        assert self.program.process.stdout is not None
        self.program._reader.join(60)
        self.program.process.stdout.close()
        self.program = None


def log_of(folder: Path) -> dict[int, bytes]:
    """The log's files by their offset."""
    return {int(path.name): path.read_bytes() for path in sorted((folder / "store" / "commitlog").iterdir())}


def same_log(master: Path, slave: Path) -> bool:
    """Whether the slave's log is the master's, byte for byte."""
    wanted, found = log_of(master), log_of(slave)
    # A file created ahead and never written to is not part of the log.
    wanted = {begin: data for begin, data in wanted.items() if any(data)}
    found = {begin: data for begin, data in found.items() if any(data)}
    return wanted == found


@dataclass
class Load:
    """Threads that send until stopped; records what was acknowledged with SEND_OK."""

    namesrv: str
    acknowledged: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, number: int) -> None:
        with Producer(f"load-{number}", namesrv=self.namesrv, send_timeout=2.0, retries=0) as producer:
            count = 0
            while not self.stopped.is_set():
                body = f"{number}-{count}-" + "x" * (count * 37 % 3000)
                with contextlib.suppress(RocketletError):
                    result = producer.send(Message(TOPIC, body.encode(), keys=[f"k{number}-{count}"], tags="TagA"))
                    if result.status.name == "SEND_OK":
                        self.acknowledged.append(f"k{number}-{count}")
                count += 1
                time.sleep(0.001)

    def wait_for(self, count: int) -> None:
        """Until so many sends have been acknowledged."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} sends were acknowledged"
            time.sleep(0.1)

    @contextlib.contextmanager
    def going(self, threads: int = 3) -> Iterator[None]:
        running = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in running:
                thread.join(120)


def brokers(pairing: str, tmp_path: Path, namesrv: str, **more: object) -> tuple[Ours | JavaBroker, Ours | JavaBroker]:
    """(master, slave) of a pairing such as `java-ours`."""
    programs = None
    if "java" in pairing:
        try:
            programs = JavaPrograms.prepare()
        except Missing as missing:
            pytest.skip(str(missing))
    made: list[Ours | JavaBroker] = []
    roles: list[dict[str, object]] = [
        {"brokerRole": "SYNC_MASTER", "brokerId": 0, **more},
        {"brokerRole": "SLAVE", "brokerId": 1, **more},
    ]
    for kind, name, role in zip(pairing.split("-"), ("master", "slave"), roles, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        if kind == "java":
            assert programs is not None
            words = {key: str(value) for key, value in {**SMALL, **role}.items()}
            made.append(JavaBroker(programs.stack, folder, namesrv, free_broker_port(), words))
        else:
            made.append(Ours(folder, namesrv, free_broker_port(), role))
    return made[0], made[1]


@pytest.mark.parametrize(
    "pairing",
    [
        "ours-ours",
        pytest.param("java-ours", marks=pytest.mark.interop),
        pytest.param("ours-java", marks=pytest.mark.interop),
    ],
)
def test_logs_stay_identical_when_killed_and_resumed_under_load(pairing: str, tmp_path: Path) -> None:
    with name_server(tmp_path) as (_, namesrv):
        master, slave = brokers(pairing, tmp_path, namesrv)
        load = Load(namesrv)
        try:
            master.start()
            slave.start()
            with load.going():
                again = 8 if pairing.endswith("java") else 3  # until they are in sync again; Java's slave takes 5 s
                for _ in range(ROUNDS):
                    time.sleep(3)
                    slave.kill()
                    time.sleep(1)
                    slave.start()
                    time.sleep(again)
                    master.kill()
                    time.sleep(1)
                    master.start()
                    time.sleep(again)
                load.wait_for(100)
            deadline = time.monotonic() + WAIT_SECONDS
            while not same_log(master.folder, slave.folder):
                assert time.monotonic() < deadline, "the slave did not catch up"
                time.sleep(0.5)
            commit_some(namesrv)
            tables_become_equal(master.address, slave.address)
            finds(master.address, load.acknowledged[-1])
            master.kill()
            assert {key for key, _ in consumed(namesrv)} >= set(load.acknowledged)
            if "java" in pairing:
                consumes_with_java(namesrv, slave.address)
        finally:
            slave.stop()
            master.stop()
        assert same_log(master.folder, slave.folder)
        for side in (master, slave):
            complete(side.folder, set(load.acknowledged), is_ours=isinstance(side, Ours))


GROUP = "copied-readers"
TABLES = {"topics": 21, "offsets": 43, "groups": 201}


def commit_some(namesrv: str) -> None:
    """Commit offsets of a group at half of each queue."""
    with PullConsumer(GROUP, namesrv=namesrv) as consumer:
        for queue in consumer.queues(TOPIC):
            consumer.note_offset(queue, consumer.max_offset(queue) // 2)
        consumer.commit()


def table(address: str, code: int) -> dict[str, Any]:
    """A broker's table, without its version and entries that only a master or only a slave has."""

    async def ask() -> bytes:
        async with ConnectionPool(TcpNetwork()) as pool:
            answer = await pool.call(address, Command(code), 10.0)
            assert answer.code == 0, answer.remark
            return bytes(answer.body)

    body = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', trio.run(ask)))
    body.pop("dataVersion", None)
    found: dict[str, Any] = next(iter(body.values()))
    return found


def finds(address: str, key: str) -> None:
    """A broker finds a message by its key. What ours had not entered into its index yet, it enters before it answers:
    within a second of a send a `kill -9` may leave that to the next start."""
    fields = {"topic": TOPIC, "key": key, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}

    async def ask() -> Command:
        async with ConnectionPool(TcpNetwork()) as pool:
            return await pool.call(address, Command(RequestCode.QUERY_MESSAGE, ext=fields), 10.0)

    deadline = time.monotonic() + WAIT_SECONDS
    while (answer := trio.run(ask)).code != 0:  # RocketMQ's index follows its log in a thread
        assert time.monotonic() < deadline, f"{key}: {answer.remark}"
        time.sleep(0.5)
    assert key.encode() in bytes(answer.body)


def tables_become_equal(master: str, slave: str) -> None:
    """A RocketMQ slave asks every ten seconds, and so does ours with a RocketMQ master."""
    deadline = time.monotonic() + WAIT_SECONDS
    for name, code in TABLES.items():
        while (wanted := table(master, code)) != (found := table(slave, code)):
            assert time.monotonic() < deadline, f"{name}: {wanted} at the master, {found} at the slave"
            time.sleep(1)


def consumed(namesrv: str) -> list[tuple[str, int]]:
    """(key, queue) of all messages, pulled by a consumer that finds only the slave."""
    found: list[tuple[str, int]] = []
    deadline = time.monotonic() + WAIT_SECONDS
    with PullConsumer("from-the-slave", namesrv=namesrv) as consumer:
        for queue in consumer.queues(TOPIC):
            offset = 0
            while True:
                try:
                    result = consumer.pull(queue, offset)
                except RocketletError:
                    assert time.monotonic() < deadline, "nobody serves pulls"
                    time.sleep(0.5)  # the route still has the master
                    continue
                found += [(message.keys[0], queue.queue_id) for message in result.messages]
                offset = result.next_offset
                if offset >= result.max_offset:
                    break
    return found


def consumes_with_java(namesrv: str, slave: str) -> None:
    """RocketMQ's own consumer reads from the slave, and commits there.

    Its output does not show this: it omits the first second, in which everything may be consumed.
    """
    programs = JavaPrograms.prepare()
    command = [str(programs.stack), "bench", "consumer", "-n", namesrv, "-t", TOPIC]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while not any(
            group.startswith(f"{TOPIC}@benchmark_consumer") and sum(offsets.values()) > 0
            for group, offsets in table(slave, TABLES["offsets"]).items()
        ):
            assert process.poll() is None, "RocketMQ's consumer ended"
            assert time.monotonic() < deadline, "RocketMQ's consumer got nothing from the slave"
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()


def complete(folder: Path, keys: set[str], *, is_ours: bool) -> None:
    """A stopped store: log, queues and index agree, and every acknowledged key is there.

    RocketMQ does not complete its index after a crash; its queues it does.
    """
    config = StoreConfig(
        store_path_root_dir=str(folder / "store"),
        mapped_file_size_commit_log=FILE_SIZE,
        mapped_file_size_consume_queue=20_000,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    report = check(RealDisk(), config)
    wrong = [one for one in report.findings if one.severity != NOTE and (is_ours or one.where != "index")]
    assert not wrong, "\n".join(report.lines())
    data = b"".join(log_of(folder).values())
    stored = {found.decode() for found in re.findall(rb"KEYS\x01(k[0-9-]+)\x02", data)}
    assert not keys - stored, f"{len(keys - stored)} acknowledged messages are not in {folder}"
