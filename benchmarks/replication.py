"""Our master and slave compared with a Java pair, in turns.

    python -m benchmarks.replication [sync] [cost] [seed] [delay] [--rounds 3] [--gigabytes 4]

`sync`: sends of 1 KiB to a SYNC_MASTER, 64 in flight on one connection, each acknowledged when the slave has it.
`cost`: the CPU a message of our ASYNC_MASTER with a slave and without one. `seed`: how fast a new slave takes a log of
messages of 1 KiB; RocketMQ's gets only the last file, so bytes per second are compared, from the first byte received to
the last. `delay`: at half of the pair's rate, the time from a message's acknowledgement by the ASYNC_MASTER to its
arrival in the slave's queue.

Needed for Java's side: java, mvn, and INTEROP, the directory that holds `stack/stack`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.beside_java import HEAP, missing
from benchmarks.support.cpu import CpuMeter, cpu_seconds, listening_pid
from benchmarks.support.frames import frame, send_frame
from benchmarks.support.memory import touch_memory
from benchmarks.support.pipeline import Measured, connect, exchange, pipelined
from benchmarks.support.processes import INTEROP, ROOT, Server, broker, free_port, name_server, scratch

TOPIC = "TopicTest"
QUEUE = 2
SIZE = 1024
RUNTIME_INFO, MAX_OFFSET = 28, 30
IN_FLIGHT = 64
PROBES = 300
READY_SECONDS = 120.0
PARTS = ("sync", "cost", "seed", "delay")

Start = Callable[..., Server]


@dataclass(frozen=True, slots=True)
class Pair:
    """Starts brokers of one name: `start(folder, **settings)`; they register at the name server on port `names`."""

    kind: str
    names: int
    start: Start

    def master(self, folder: str, role: str) -> Server:
        return self.start(folder, brokerRole=role, brokerId=0)

    def slave(self, folder: str) -> Server:
        return self.start(folder, brokerRole="SLAVE", brokerId=1)


@contextmanager
def pair(kind: str) -> Iterator[Pair]:
    """A name server and brokers, until the block ends. `kind`: ours or java."""
    with scratch() as directory, ExitStack() as resources:
        if kind == "ours":
            names = resources.enter_context(name_server(directory)).port
        else:
            names = free_port()
            _java(directory / "names", "namesrv", str(names))
            resources.callback(_java, directory / "names", "stop")

        def start(folder: str, **settings: object) -> Server:
            place = directory / folder
            place.mkdir()
            if kind == "ours":
                return resources.enter_context(broker(place, names, **settings))
            port = free_port()
            words = [f"{key}={value}" for key, value in {"brokerName": "broker-a", **settings}.items()]
            _java(place, "broker", f"127.0.0.1:{names}", str(port), *words)
            resources.callback(_java, place, "stop")
            pid = listening_pid(port)
            assert pid is not None
            return Server(port, pid, place)

        yield Pair(kind, names, start)


def _java(folder: Path, command: str, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    script = str(INTEROP / "stack" / "stack")
    with (folder / "stack.out").open("ab") as output:
        subprocess.run(
            [script, command, str(folder), *words], env=os.environ | {"BROKER_HEAP": HEAP},
            stdout=output, stderr=output, check=True,
        )  # fmt: skip


def log_end(port: int) -> int:
    """Where a broker's log ends."""
    with connect(port) as connection:
        while _code(answer := exchange(connection, frame("json", RUNTIME_INFO, {}))) != 0:
            time.sleep(0.1)  # a broker that has just started, or is busy
    size = int.from_bytes(answer[1:4], "big")
    return int(json.loads(answer[4 + size :])["table"]["commitLogMaxOffset"])


def wait_for_slave(master: Server) -> None:
    """Wait until a send to a SYNC_MASTER is acknowledged by its slave."""
    request, deadline = send_frame("json", TOPIC, QUEUE, b"x"), time.monotonic() + READY_SECONDS
    with connect(master.port) as connection:
        while _code(exchange(connection, request)) != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no slave acknowledges at 127.0.0.1:{master.port}")
            time.sleep(0.2)


def _code(answer: bytes) -> int:
    size = int.from_bytes(answer[1:4], "big")
    return int(json.loads(answer[4 : 4 + size])["code"])


def load(master: Server, count: int, in_flight: int = IN_FLIGHT) -> Measured:
    return pipelined(master.port, send_frame("json", TOPIC, QUEUE, b"x" * SIZE), in_flight, count)


def catch_up(master: Server, slave: Server) -> None:
    end, deadline = log_end(master.port), time.monotonic() + 600
    while log_end(slave.port) < end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave at 127.0.0.1:{slave.port} does not catch up")
        time.sleep(0.1)


def kinds() -> list[str]:
    return ["ours"] if missing() else ["ours", "java"]


def sync(rounds: int, count: int) -> dict[str, list[Measured]]:
    """Runs of sends by kind of pair."""
    runs: dict[str, list[Measured]] = {}
    with ExitStack() as resources:
        masters = {}
        for kind in kinds():
            pair_ = resources.enter_context(pair(kind))
            masters[kind] = pair_.master("master", "SYNC_MASTER")
            pair_.slave("slave")
            wait_for_slave(masters[kind])
            load(masters[kind], count * (3 if kind == "java" else 1))  # until the JIT has compiled it
        for _ in range(rounds):
            for kind, master in masters.items():
                runs.setdefault(kind, []).append(load(master, count))
    return runs


def cost(rounds: int, count: int) -> dict[str, list[Measured]]:
    """Runs of sends to our ASYNC_MASTER, `alone` and `followed`."""
    runs: dict[str, list[Measured]] = {}
    with pair("ours") as first, pair("ours") as second:
        alone, followed = first.master("master", "ASYNC_MASTER"), second.master("master", "ASYNC_MASTER")
        slave = second.slave("slave")
        for master in (alone, followed):
            load(master, count)
        catch_up(followed, slave)
        for _ in range(rounds):
            for name, master in (("alone", alone), ("followed", followed)):
                before = cpu_seconds(master.pid)
                run = load(master, count)
                if name == "followed":
                    catch_up(followed, slave)  # bytes sent to the slave after the last answer count too
                else:
                    log_end(alone.port)
                run = Measured(run.requests, run.seconds, cpu_seconds(master.pid) - before, run.received)
                runs.setdefault(name, []).append(run)
    return runs


def seed(gigabytes: float) -> dict[str, float]:
    """Bytes a second that a new slave takes, by kind; `cpu` seconds of the slave for each GiB as `kind cpu`."""
    rates: dict[str, float] = {}
    for kind in kinds():
        with pair(kind) as pair_:
            master = pair_.master("master", "ASYNC_MASTER")
            size = int(gigabytes * (1 << 30))
            if kind == "java":
                size = min(size, 15 << 26)  # its slave gets the last file, of 1 GiB
            while (remaining := size - log_end(master.port)) > 0:
                load(master, max(min(remaining // 1300, 200_000), 1000))
            touch_memory(size)
            slave, end = pair_.slave("slave"), log_end(master.port)
            meter = CpuMeter(slave.pid).start()
            start_time, first = 0.0, 0
            while (at := log_end(slave.port)) < end:
                if at and not start_time:
                    start_time, first = time.perf_counter(), at
                time.sleep(0.1)  # a request costs the slave a millisecond
            begin = 0 if kind == "ours" else max(first - (1 << 30), 0)
            rates[kind] = (end - max(first, begin)) / max(time.perf_counter() - start_time, 1e-9)
            rates[f"{kind} cpu"] = meter.read() / (end / (1 << 30))
    return rates


def delay(rate_of: dict[str, float]) -> dict[str, list[float]]:
    """Milliseconds from the acknowledgement by the master to the message in the slave's queue, by kind."""
    delays: dict[str, list[float]] = {}
    for kind in kinds():
        with pair(kind) as pair_:
            master = pair_.master("master", "ASYNC_MASTER")
            load(master, 30_000)
            slave = pair_.slave("slave")
            catch_up(master, slave)
            rate = rate_of.get(kind) or load(master, 60_000).rate
            command = [sys.executable, "-m", "benchmarks.replication", "--steady", f"{master.port},{rate / 2:.0f}"]
            steady = subprocess.Popen(command, cwd=ROOT)
            try:
                time.sleep(3)
                delays[kind] = _probe(master.port, slave.port)
            finally:
                steady.terminate()
                steady.wait()
    return delays


def _probe(master: int, slave: int) -> list[float]:
    # A separate queue, so that its end shows the probe.
    request = send_frame("json", TOPIC, 0, b"p" * SIZE)
    ask = frame("json", MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
    delays, rng = [], Random(1)
    with connect(master) as sending, connect(slave) as asking:
        for _ in range(PROBES):
            answer = exchange(sending, request)
            sent = time.perf_counter()
            size = int.from_bytes(answer[1:4], "big")
            target = int(json.loads(answer[4 : 4 + size])["extFields"]["queueOffset"]) + 1
            while True:
                answer = exchange(asking, ask)
                size = int.from_bytes(answer[1:4], "big")
                if int(json.loads(answer[4 : 4 + size]).get("extFields", {}).get("offset", 0)) >= target:
                    break
            delays.append((time.perf_counter() - sent) * 1000)
            time.sleep(rng.uniform(0.0, 0.02))
    return delays


def steady(port: int, rate: float) -> None:
    """Send at a steady rate, until terminated."""
    burst = send_frame("json", TOPIC, QUEUE, b"x" * SIZE)
    with connect(port) as connection:
        connection.setblocking(False)
        start_time, sent = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - start_time) * rate) - sent
            if due > 0:
                connection.setblocking(True)
                connection.sendall(burst * min(due, 256))
                connection.setblocking(False)
                sent += min(due, 256)
            try:
                connection.recv(1 << 18)
            except BlockingIOError:
                pass
            time.sleep(0.002)


def middle(runs: list[Measured], figure: Callable[[Measured], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def measured(
    parts: tuple[str, ...] = PARTS, rounds: int = 3, gigabytes: float = 4.0, count: int = 60_000
) -> dict[str, float]:
    """All figures by name; comparisons with Java only if Java is present."""
    figures: dict[str, float] = {}
    rates: dict[str, float] = {}
    if "sync" in parts:
        for kind, runs in sync(rounds, count).items():
            rates[kind] = figures[f"sync_{kind}_rate"] = middle(runs, lambda run: run.rate)
            figures[f"sync_{kind}_cpu"] = middle(runs, lambda run: run.cpu_micros)
        if "java" in rates:
            figures["sync_ratio"] = rates["ours"] / rates["java"]
    if "cost" in parts:
        runs_of = cost(rounds + 2, count)
        for name, runs in runs_of.items():
            figures[f"cost_{name}_cpu"] = middle(runs, lambda run: run.cpu_micros)
        figures["cost_ratio"] = figures["cost_followed_cpu"] / figures["cost_alone_cpu"]
    if "seed" in parts:
        for kind, value in seed(gigabytes).items():
            figures[f"seed_{kind.replace(' ', '_')}"] = value
        if "seed_java" in figures:
            figures["seed_ratio"] = figures["seed_ours"] / figures["seed_java"]
    if "delay" in parts:
        for kind, delays in delay(rates).items():
            figures[f"delay_{kind}"] = statistics.median(delays)
            figures[f"delay_{kind}_p99"] = statistics.quantiles(delays, n=100)[98]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of the log that a new slave takes")
    parser.add_argument("--count", type=int, default=60_000, help="sends of a run")
    parser.add_argument("--steady", metavar="PORT,RATE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steady:
        port, rate = options.steady.split(",")
        steady(int(port), float(rate))
        return
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}")
    if missing():
        print(f"without Java's side; missing: {', '.join(missing())}")
    for name, value in measured(
        tuple(options.parts) or PARTS, options.rounds, options.gigabytes, options.count
    ).items():
        print(f"{name:24} {value:>16,.2f}", flush=True)


if __name__ == "__main__":
    main()
