"""Three etcd, three brokers, a name server: real processes that are killed, stopped and cut off, with a ledger.

    python -m benchmarks.failover_rounds kill --rounds 100
    python -m benchmarks.failover_rounds stop cut slave etcd --rounds 20 --seconds 1200

Four producers send and two consumers read all the while. The ledger has every message that was acknowledged, with its
queue and offset, and every one that a consumer has seen. After each round, and at the end:

- nothing acknowledged is lost or at another offset, nothing seen has vanished;
- messages of one producer in one queue are in order;
- the logs of the three brokers are identical up to the confirmed end.

It reports how long sends took to continue after each fault. Faults: `kill` (SIGKILL of the master), `stop` (SIGSTOP for
30 seconds), `cut` (the master's links to the other replicas), `slave` (one slave from etcd, then the master is killed),
`etcd` (all of etcd for 30 seconds), `switch` (mqadmin switchMaster).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import trio

from rocketlet.client import AsyncProducer, Message, SendStatus
from rocketlet.client.errors import ClientError
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, PullMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import ByteStream, TcpNetwork
from tests.support.etcd import EtcdCluster
from tests.support.ports import free_port
from tests.support.records import decode_all

TOPIC = "Ledger"
QUEUES = 4
CUT_SECONDS = 12.0
AWAY_SECONDS = 30.0


class Proxy:
    """A TCP proxy; `cut` swallows all data, like a network that loses everything."""

    def __init__(self, port: int, target: str) -> None:
        self.port = port
        self.target = target
        self.is_cut = False
        self._streams: set[ByteStream] = set()
        self._healed = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", self.port)
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                nursery.start_soon(self._connect, network, await listener.accept())

    async def _connect(self, network: TcpNetwork, client_stream: ByteStream) -> None:
        server_stream: ByteStream | None = None
        self._streams.add(client_stream)
        try:
            while self.is_cut:
                await self._healed.wait()
            server_stream = await network.dial(self.target)
            self._streams.add(server_stream)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, client_stream, server_stream, nursery.cancel_scope)
                nursery.start_soon(self._pump, server_stream, client_stream, nursery.cancel_scope)
        except (RemotingError, OSError):
            pass  # nothing listens there: the connection just ends
        finally:
            for stream in (client_stream, server_stream):
                if stream is not None:
                    self._streams.discard(stream)
                    with trio.CancelScope(shield=True):
                        await stream.aclose()

    async def _pump(self, source: ByteStream, sink: ByteStream, scope: trio.CancelScope) -> None:
        try:
            while data := await source.receive_some(65536):
                if self.is_cut:
                    await self._healed.wait()
                    break  # swallowed data is lost, and so is the connection
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side notices the end of its connection
        scope.cancel()

    def cut(self) -> None:
        self.is_cut, self._healed = True, trio.Event()

    def heal(self) -> None:
        self.is_cut = False
        self._healed.set()


@dataclass
class Node:
    number: int
    folder: Path
    port: int
    replica: Proxy
    etcd: list[Proxy]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass
class Ledger:
    acked: dict[tuple[int, int], str] = field(default_factory=dict)  # (queue, offset): body
    seen: dict[tuple[int, int], str] = field(default_factory=dict)
    ack_times: list[float] = field(default_factory=list)
    failed: int = 0
    errors: list[str] = field(default_factory=list)

    def note(self, kind: dict[tuple[int, int], str], place: tuple[int, int], body: str, verb: str) -> None:
        earlier = kind.setdefault(place, body)
        if earlier != body:
            self.errors.append(f"{verb} at {place}: {earlier}, and later {body}")


class Rounds:
    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self.directory = directory
        self.options = options
        self.random = Random(f"{options.seed} {os.getpid()}")
        self.etcd = EtcdCluster(directory, 3)
        self.nodes: list[Node] = []
        self.ledger = Ledger()
        self.namesrv = ""
        self.namesrv_process: subprocess.Popen[bytes] | None = None
        self.resumed: dict[str, list[float]] = defaultdict(list)
        self.failed: dict[str, int] = defaultdict(int)

    # ---- processes

    def start_namesrv(self) -> None:
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        out = (self.directory / "namesrv.log").open("ab")
        self.namesrv_process = subprocess.Popen(
            [sys.executable, "-m", "rocketlet.namesrv", "--listenPort", str(port),
             "--kvConfigPath", str(self.directory / "kv.json"),
             "--configStorePath", str(self.directory / "namesrv.properties")],
            stdout=out, stderr=out,
        )  # fmt: skip

    def start(self, node: Node) -> None:
        settings: dict[str, object] = {
            "brokerName": "broker-a", "listenPort": node.port, "namesrvAddr": self.namesrv,
            "storePathRootDir": node.folder, "failoverEnable": "true", "replicaId": node.number,
            "replicaAddress": f"127.0.0.1:{node.replica.port}",
            "etcdEndpoints": ",".join(f"http://127.0.0.1:{proxy.port}" for proxy in node.etcd),
            "flushDiskType": self.options.flush, "mappedFileSizeCommitLog": 1 << 26, "logLevel": "INFO",
            "defaultTopicQueueNums": QUEUES, "minInSyncReplicas": self.options.min_in_sync,
        }  # fmt: skip
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        out = (self.directory / f"broker-{node.number}.log").open("ab")
        node.process = subprocess.Popen([sys.executable, "-m", "rocketlet.broker", *words], stdout=out, stderr=out)

    def stop_all(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
                node.process.wait()
        if self.namesrv_process is not None:
            self.namesrv_process.kill()
            self.namesrv_process.wait()
        for number in range(3):
            self.etcd.stop(number)

    # ---- load

    async def produce(self, number: int) -> None:
        count = 0
        async with AsyncProducer(f"p{number}", namesrv=self.namesrv, send_timeout=3.0) as producer:
            while True:
                count += 1
                body = f"{number}-{count}"
                try:
                    result = await producer.send(Message(TOPIC, body.encode()))
                except ClientError as error:
                    self.ledger.failed += 1
                    if self.options.verbose:
                        print(f"{time.strftime('%H:%M:%S')} {body}: {error}", flush=True)
                    await trio.sleep(0.05)
                    continue
                if result.status is SendStatus.SEND_OK:
                    place = (result.queue.queue_id, result.queue_offset)
                    self.ledger.note(self.ledger.acked, place, body, "acknowledged")
                    self.ledger.ack_times.append(time.monotonic())
                await trio.sleep(self.options.pause)

    async def master(self, pool: ConnectionPool) -> str | None:
        try:
            answer = await pool.call(self.namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3)
            table = json.loads(answer.body)["brokerAddrTable"]["broker-a"]["brokerAddrs"]
            address: str | None = table.get("0")
            return address
        except (RemotingError, KeyError, ValueError):
            return None

    async def consume(self, number: int) -> None:
        offsets = [0] * QUEUES
        async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
            while True:
                address = await self.master(pool)
                try:
                    while address is not None:
                        count = 0
                        for queue in range(QUEUES):
                            count += await self.pull(pool, address, queue, offsets)
                        await trio.sleep(0.02 if count else 0.1)
                except RemotingError:
                    pass  # asked again where the master is
                await trio.sleep(0.2)

    async def pull(self, pool: ConnectionPool, address: str, queue: int, offsets: list[int]) -> int:
        header = PullMessageHeader(
            queueId=queue, queueOffset=offsets[queue], maxMsgNums=32, topic=TOPIC, consumerGroup="CG",
            sysFlag=SUBSCRIPTION, subscription="*",
        )  # fmt: skip
        answer = await pool.call(address, Command(int(RequestCode.PULL_MESSAGE), ext=to_ext(header)), 3)
        if answer.code == 14:
            raise RemotingError("no master")
        if answer.code != 0:
            return 0
        records = decode_all(bytes(answer.body))
        for record in records:
            place = (queue, record.queue_offset)
            if record.queue_offset != offsets[queue]:
                self.ledger.errors.append(
                    f"queue {queue}: offset {record.queue_offset} came where {offsets[queue]} is next"
                )
            self.ledger.note(self.ledger.seen, place, bytes(record.body).decode(), "seen")
            offsets[queue] = record.queue_offset + 1
        return len(records)

    # ---- faults

    async def status(self, pool: ConnectionPool, node: Node) -> dict[str, str]:
        try:
            answer = await pool.call(node.address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 3)
            table: dict[str, str] = json.loads(answer.body)["table"]
            return table
        except (RemotingError, KeyError, ValueError):
            return {}

    async def healthy(self, pool: ConnectionPool, seconds: float = 120) -> Node:
        """The master, once all three are in sync again."""
        with trio.fail_after(seconds):
            while True:
                tables = [(await self.status(pool, node), node) for node in self.nodes]
                epochs = {table.get("epoch") for table, _ in tables}
                for table, node in tables:
                    leads = table.get("failoverState") == "leading"
                    if leads and table["inSyncReplicas"].count("/") == 3 and len(epochs) == 1:
                        return node
                await trio.sleep(0.1)

    async def round(self, pool: ConnectionPool, fault: str) -> None:
        master = await self.healthy(pool)
        await trio.sleep(self.random.uniform(0.3, 1.5))
        assert master.process is not None
        begin = time.monotonic()
        if fault == "kill":
            master.process.kill()
            master.process.wait()
            await self.wait_until_sends_resume(fault, begin)
            self.start(master)
        elif fault == "stop":
            master.process.send_signal(signal.SIGSTOP)
            await self.wait_until_sends_resume(fault, begin)
            await trio.sleep(max(AWAY_SECONDS - (time.monotonic() - begin), 0))
            master.process.send_signal(signal.SIGCONT)
        elif fault == "cut":
            proxies = [master.replica, *master.etcd]
            for proxy in proxies:
                proxy.cut()
            await self.wait_until_sends_resume(fault, begin)
            await trio.sleep(max(CUT_SECONDS - (time.monotonic() - begin), 0))
            for proxy in proxies:
                proxy.heal()
        elif fault == "slave":
            slave = self.random.choice([node for node in self.nodes if node is not master])
            for proxy in slave.etcd:
                proxy.cut()
            await trio.sleep(self.random.uniform(0, 6))
            begin = time.monotonic()
            master.process.kill()
            master.process.wait()
            await self.wait_until_sends_resume(fault, begin)
            self.start(master)
            for proxy in slave.etcd:
                proxy.heal()
        elif fault == "etcd":
            before = len(self.ledger.ack_times)
            for number in range(3):
                self.etcd.stop(number)
            await trio.sleep(AWAY_SECONDS)
            gaps = [b - a for a, b in pairwise(self.ledger.ack_times[before:])]
            self.resumed[fault].append(max(gaps, default=AWAY_SECONDS))
            for number in range(3):
                self.etcd.start(number)
            await trio.to_thread.run_sync(self.etcd.wait)
        elif fault == "switch":
            command = [sys.executable, "-m", "rocketlet.tools.admin", "switchMaster", "-b", master.address]
            command += ["-n", self.namesrv]
            await trio.to_thread.run_sync(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
            await self.wait_until_sends_resume(fault, begin, time.monotonic())

    async def wait_until_sends_resume(self, fault: str, begin: float, settled: float = 0) -> None:
        """Wait until sends are acknowledged that were not in flight at the fault, or later than `settled`."""
        settled = settled or begin + 0.2
        with trio.fail_after(90):
            while not self.ledger.ack_times or self.ledger.ack_times[-1] < settled:
                await trio.sleep(0.01)
        await trio.sleep(1)
        times = [begin, *[moment for moment in self.ledger.ack_times if moment >= begin]]
        self.resumed[fault].append(max(b - a for a, b in pairwise(times)))

    # ---- the verdict

    async def check(self, pool: ConnectionPool) -> int:
        """Read everything from the master, and compare it with the ledger. Returns the number of messages."""
        master = await self.healthy(pool)
        stored: dict[tuple[int, int], str] = {}
        for queue in range(QUEUES):
            offsets = [0] * QUEUES
            while True:
                header = PullMessageHeader(
                    queueId=queue, queueOffset=offsets[queue], maxMsgNums=32, topic=TOPIC, consumerGroup="CG",
                    sysFlag=SUBSCRIPTION, subscription="*",
                )  # fmt: skip
                answer = await pool.call(master.address, Command(int(RequestCode.PULL_MESSAGE), ext=to_ext(header)), 10)
                if answer.code != 0:
                    break
                for record in decode_all(bytes(answer.body)):
                    stored[queue, record.queue_offset] = bytes(record.body).decode()
                    offsets[queue] = record.queue_offset + 1
        for name, kind in (("acknowledged", self.ledger.acked), ("seen", self.ledger.seen)):
            for place, body in kind.items():
                if stored.get(place) != body:
                    self.ledger.errors.append(f"{name} {body} at {place}: there is {stored.get(place)}")
        self._check_order(stored)
        return len(stored)

    def _check_order(self, stored: dict[tuple[int, int], str]) -> None:
        """A producer waits for each answer, so its messages are in order, apart from repetitions."""
        last: dict[tuple[int, str], int] = {}
        for (queue, offset), body in sorted(stored.items()):
            producer, _, number = body.partition("-")
            if (queue, offset) in self.ledger.acked:
                if last.get((queue, producer), 0) > int(number):
                    self.ledger.errors.append(f"queue {queue}: {body} at {offset} was overtaken")
                last[queue, producer] = int(number)

    def compare_logs(self) -> str:
        """After a clean stop of everything: compare the logs, byte for byte."""
        logs: list[dict[str, bytes]] = []
        for node in self.nodes:
            folder = node.folder / "commitlog"
            logs.append({path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdigit()})
        for name in logs[0]:
            contents = [log.get(name, b"") for log in logs]
            sizes = [len(data.rstrip(b"\0")) for data in contents]
            shortest = min(sizes)
            if len({data[:shortest] for data in contents}) != 1:
                self.ledger.errors.append(f"log file {name} differs within the first {shortest} bytes")
        return ", ".join(str(sum(len(data.rstrip(b"\0")) for data in log.values())) for log in logs)

    # ---- all of it

    async def run(self) -> None:
        for number in range(1, 4):
            port = free_port(-2, 1, 2)  # with those for VIP clients, slaves and replicas
            etcd = [Proxy(free_port(), endpoint.partition("://")[2]) for endpoint in self.etcd.endpoints]
            folder = self.directory / f"store-{number}"
            self.nodes.append(Node(number, folder, port, Proxy(free_port(), f"127.0.0.1:{port + 2}"), etcd))
        for number in range(3):
            self.etcd.start(number)
        self.start_namesrv()
        await trio.to_thread.run_sync(self.etcd.wait)
        deadline = time.monotonic() + self.options.seconds
        async with trio.open_nursery() as nursery, ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
            for node in self.nodes:
                for proxy in (node.replica, *node.etcd):
                    await nursery.start(proxy.serve)
                self.start(node)
            await self.healthy(pool)
            done: dict[str, int] = defaultdict(int)
            async with trio.open_nursery() as load:
                for number in range(4):
                    load.start_soon(self.produce, number)
                for number in range(2):
                    load.start_soon(self.consume, number)
                await self.rounds(pool, done, deadline)
                await self.healthy(pool)
                await trio.sleep(2)
                load.cancel_scope.cancel()
            self.print_summary(done, await self.check(pool))
            nursery.cancel_scope.cancel()

    async def rounds(self, pool: ConnectionPool, done: dict[str, int], deadline: float) -> None:
        for number in range(self.options.rounds):
            for fault in self.options.faults:
                if time.monotonic() > deadline or self.ledger.errors:
                    return
                before = self.ledger.failed
                await self.round(pool, fault)
                done[fault] += 1
                self.failed[fault] += self.ledger.failed - before
                now = time.strftime("%H:%M:%S")
                print(
                    f"{now} {fault} {self.resumed[fault][-1]:.2f} s, {self.ledger.failed - before} failed", flush=True
                )
            if (number + 1) % 5 == 0:
                self.print_summary(done)

    def print_summary(self, done: dict[str, int], stored: int = -1) -> None:
        summary = {
            fault: f"{count} rounds, sends went on after {statistics.median(self.resumed[fault]):.2f} s median,"
            f" {max(self.resumed[fault]):.2f} s at worst, {self.failed[fault]} sends failed"
            for fault, count in done.items()
            if self.resumed[fault]
        }
        print(
            f"{time.strftime('%H:%M:%S')} {summary}; acknowledged {len(self.ledger.acked)}, seen"
            f" {len(self.ledger.seen)}, failed sends {self.ledger.failed}, there {stored}, wrong"
            f" {len(self.ledger.errors)}",
            flush=True,
        )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="+", choices=["kill", "stop", "cut", "slave", "etcd", "switch"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.05, help="of a producer between two sends")
    parser.add_argument("-v", "--verbose", action="store_true", help="print why sends fail")
    parser.add_argument("--flush", default="ASYNC_FLUSH")
    parser.add_argument("--min-in-sync", type=int, default=1)
    parser.add_argument("--directory", help="kept; otherwise a temporary one, kept only if something is wrong")
    options = parser.parse_args()
    directory = Path(options.directory or tempfile.mkdtemp(prefix="failover-"))
    directory.mkdir(parents=True, exist_ok=True)
    rounds = Rounds(directory, options)
    try:
        trio.run(rounds.run)
        for node in rounds.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.terminate()
                node.process.wait()
                node.process = None
        print("bytes of the logs:", rounds.compare_logs())
    finally:
        rounds.stop_all()
    for line in rounds.ledger.errors[:20]:
        print("WRONG:", line)
    if not rounds.ledger.errors and not options.directory:
        shutil.rmtree(directory)
    else:
        print(f"kept in {directory}")
    return 1 if rounds.ledger.errors else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "default")
    sys.exit(main())
