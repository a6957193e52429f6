"""Three replicas that elect their master compared with a single broker, and with a Java SYNC_MASTER pair if there is
Java.

    python -m benchmarks.failover [--rounds 3] [--count 40000] [--loads bursts,producer] [--window 15]

64 sends of 1 KiB in flight on one connection; a send is answered when all three replicas have it. `bursts`: two bursts
of 32 prepared requests, which leaves the machine to the brokers. `producer`: RocketMQ's own benchmark producer with 64
threads, each of which waits for its answer; needs Java. `half load`: at half of that rate, how long a send takes. The
two cores of a small machine carry all brokers at once, so the master's CPU per message says more than its rate.

Needed: etcd (`pip install 'rocketlet[etcd]'`). For Java's side: java, mvn, and INTEROP.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_java import JavaClients, missing, run
from benchmarks.replication import pair, wait_for_slave
from benchmarks.support.frames import frame, send_frame
from benchmarks.support.memory import touch_memory
from benchmarks.support.pipeline import connect, exchange, pipelined
from benchmarks.support.processes import Server, broker, name_server, scratch
from tests.support.etcd import etcd_cluster

IN_FLIGHT = 64
RUNTIME_INFO = 28
READY_SECONDS = 120.0
_LOGS = 1 << 30  # more than three replicas write in a round
REQUEST = send_frame("json", "TopicTest", 2, b"x" * 1024)
LOADS = ("bursts", "producer")
_TAIL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """Brokers of one name: their master, and the port of their name server."""

    master: Server
    names: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Messages a second, µs of the master's CPU for each, and how long 99 % take at half that rate, in ms."""

    rate: float
    cpu: float
    tail: float


def runtime(port: int) -> dict[str, str]:
    """A broker's runtime info."""
    with connect(port) as connection:
        answer = exchange(connection, frame("json", RUNTIME_INFO, {}))
    size = int.from_bytes(answer[1:4], "big")
    table: dict[str, str] = json.loads(answer[4 + size :] or b"{}").get("table", {})
    return table


@contextmanager
def replicas(size: int) -> Iterator[Group]:
    """That many replicas, once all are in sync; one: a single broker."""
    with scratch() as directory, ExitStack() as resources:
        names = resources.enter_context(name_server(directory)).port
        if size == 1:
            (directory / "b").mkdir()
            yield Group(resources.enter_context(broker(directory / "b", names)), names)
            return
        etcd = resources.enter_context(etcd_cluster(directory))
        servers = []
        for number in range(1, size + 1):
            (directory / f"b{number}").mkdir()
            settings = {"failoverEnable": "true", "replicaId": number, "etcdEndpoints": ",".join(etcd.endpoints)}
            servers.append(resources.enter_context(broker(directory / f"b{number}", names, **settings)))
        deadline = time.monotonic() + READY_SECONDS
        while True:
            for server in servers:
                table = runtime(server.port)
                if table.get("failoverState") == "leading" and table["inSyncReplicas"].count("/") == size:
                    yield Group(server, names)
                    return
            if time.monotonic() > deadline:
                raise RuntimeError("the replicas do not come in sync")
            time.sleep(0.2)


@contextmanager
def java_pair() -> Iterator[Group]:
    """A Java SYNC_MASTER, with its slave."""
    with pair("java") as brokers:
        master = brokers.master("master", "SYNC_MASTER")
        brokers.slave("slave")
        wait_for_slave(master)
        yield Group(master, brokers.names)


def times_at(port: int, rate: float, seconds: float) -> list[float]:
    """How long sends take at this rate."""
    sent: list[float] = []
    durations: list[float] = []
    with connect(port) as connection:
        connection.setblocking(False)
        start_time, rest = time.perf_counter(), b""
        until = start_time + seconds
        while len(durations) < len(sent) or time.perf_counter() < until:
            now = time.perf_counter()
            while now < until and len(sent) < (now - start_time) * rate:
                connection.setblocking(True)
                connection.sendall(REQUEST)
                connection.setblocking(False)
                sent.append(time.perf_counter())
            readable, _, _ = select.select([connection], [], [], 0.0005)
            if readable:
                rest += connection.recv(1 << 18)
                now = time.perf_counter()
                while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
                    rest = rest[4 + size :]
                    durations.append(now - sent[len(durations)])
    return sorted(durations)


def measured(load: str, group: Group, clients: JavaClients | None, options: argparse.Namespace) -> Figures:
    """One run of a load."""
    master = group.master
    if load == "bursts":
        pipelined(master.port, REQUEST, IN_FLIGHT, options.count // 4)
        bursts = pipelined(master.port, REQUEST, IN_FLIGHT, options.count)
        rate, cpu = bursts.rate, bursts.cpu_micros
    else:
        assert clients is not None
        sent = run("sync", clients.command("sync", group.names), master, options.window)
        rate, cpu = sent.rate, sent.broker_cpu
    times = times_at(master.port, rate / 2, _TAIL_SECONDS)
    return Figures(rate, cpu, times[int(len(times) * 0.99)] * 1000)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=40_000, help="sends of a run of bursts")
    parser.add_argument("--window", type=float, default=15.0, help="seconds of a run of the producer")
    possible = ",".join(LOADS[:1] if missing() else LOADS)
    parser.add_argument("--loads", default=possible, help="which, with commas between")
    options = parser.parse_args()
    kinds: dict[str, Callable[[], AbstractContextManager[Group]]] = {
        "alone": lambda: replicas(1),
        "three replicas": lambda: replicas(3),
    }
    if not missing():
        kinds["Java SYNC_MASTER pair"] = java_pair
    loads = options.loads.split(",")
    runs: dict[tuple[str, str], list[Figures]] = {(load, kind): [] for load in loads for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="rocketlet-bench-") as directory:
        clients = JavaClients.compile(Path(directory)) if "producer" in loads else None
        for _ in range(options.rounds):
            for kind, start in kinds.items():
                touch_memory(_LOGS)
                with start() as group:
                    for load in loads:
                        runs[load, kind].append(measured(load, group, clients, options))
    for load in loads:
        alone = median(runs[load, "alone"])
        for kind in kinds:
            figures = median(runs[load, kind])
            print(
                f"{load:9} {kind:22} {figures.rate:>9,.0f}/s ({figures.rate / alone.rate:.2f})   {figures.cpu:6.1f} µs"
                f" of the master's CPU ({figures.cpu / alone.cpu:.2f})   p99 at half load {figures.tail:6.1f} ms"
            )


def median(figures: list[Figures]) -> Figures:
    """Of each figure by itself."""
    return Figures(
        statistics.median(one.rate for one in figures),
        statistics.median(one.cpu for one in figures),
        statistics.median(one.tail for one in figures),
    )


if __name__ == "__main__":
    main()
