"""Three replicas that elect their master compared with a single broker, and with a Java SYNC_MASTER pair if there is
Java.

    python -m benchmarks.failover [--rounds 3] [--count 40000]

Sends of 1 KiB, 64 in flight on one connection; a send is answered when all three replicas have it. `half load`: at half
of that rate, how long a send takes. The two cores of a small machine carry all brokers at once, so the master's CPU per
message says more than its rate.

Needed: etcd (`pip install 'rocketlet[etcd]'`). For Java's side: java, mvn, and INTEROP.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.beside_java import missing
from benchmarks.replication import pair, wait_for_slave
from benchmarks.support.frames import frame, send_frame
from benchmarks.support.memory import touch_memory
from benchmarks.support.pipeline import Measured, connect, exchange, pipelined
from benchmarks.support.processes import Server, broker, name_server, scratch
from tests.support.etcd import etcd_cluster

IN_FLIGHT = 64
RUNTIME_INFO = 28
READY_SECONDS = 120.0
_LOGS = 1 << 30  # more than three replicas write in a round
REQUEST = send_frame("json", "TopicTest", 2, b"x" * 1024)


def runtime(port: int) -> dict[str, str]:
    """A broker's runtime info."""
    with connect(port) as connection:
        answer = exchange(connection, frame("json", RUNTIME_INFO, {}))
    size = int.from_bytes(answer[1:4], "big")
    table: dict[str, str] = json.loads(answer[4 + size :] or b"{}").get("table", {})
    return table


@contextmanager
def replicas(size: int) -> Iterator[Server]:
    """The master of that many replicas, once all are in sync; one: a single broker."""
    with scratch() as directory, ExitStack() as resources:
        names = resources.enter_context(name_server(directory)).port
        if size == 1:
            (directory / "b").mkdir()
            yield resources.enter_context(broker(directory / "b", names))
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
                    yield server
                    return
            if time.monotonic() > deadline:
                raise RuntimeError("the replicas do not come in sync")
            time.sleep(0.2)


@contextmanager
def java_pair() -> Iterator[Server]:
    """A Java SYNC_MASTER, with its slave."""
    with pair("java") as brokers:
        master = brokers.master("master", "SYNC_MASTER")
        brokers.slave("slave")
        wait_for_slave(master)
        yield master


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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=40_000)
    options = parser.parse_args()
    kinds = {"alone": lambda: replicas(1), "three replicas": lambda: replicas(3)}
    if not missing():
        kinds["Java SYNC_MASTER pair"] = java_pair
    runs: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    tails: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind, start in kinds.items():
            touch_memory(_LOGS)
            with start() as master:
                pipelined(master.port, REQUEST, IN_FLIGHT, options.count // 4)
                run = pipelined(master.port, REQUEST, IN_FLIGHT, options.count)
                runs[kind].append(run)
                times = times_at(master.port, run.rate / 2, 5.0)
                tails[kind].append(times[int(len(times) * 0.99)] * 1000)
    alone = statistics.median(run.rate for run in runs["alone"])
    alone_cpu = statistics.median(run.cpu_micros for run in runs["alone"])
    for kind, measured in runs.items():
        rate = statistics.median(run.rate for run in measured)
        cpu = statistics.median(run.cpu_micros for run in measured)
        tail = statistics.median(tails[kind])
        print(
            f"{kind:24} {rate:>9,.0f}/s ({rate / alone:.2f})   {cpu:6.1f} µs of the master's CPU"
            f" ({cpu / alone_cpu:.2f})   p99 at half load {tail:6.1f} ms"
        )


if __name__ == "__main__":
    main()
