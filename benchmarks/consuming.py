"""Consuming a topic from its beginning: our broker beside a Java broker, our consumer beside the official one.

    python -m benchmarks.consuming [--count 300000] [--rounds 3]

Messages of 1 KiB in 8 queues. `push` and `push 8` are the official client's push consumer with 1 and with 8 groups,
`lite` is its lite pull consumer (benchmarks/java/ConsumeLoad.java, which only counts, as RocketMQ's benchmark consumer
does), `ours` is our push consumer. `cold`: the broker was restarted, and its log is not in the page cache.
`sending`: push while RocketMQ's benchmark producer sends with 64 threads; the CPU there is that of both.

CPU is the kernel's, of the broker's process and of the consumer's with its start. Needed: as for `beside_java`.

Java: (none)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_java import HEAP, TOPIC, JavaClients, missing
from benchmarks.support.cpu import CpuMeter, listening_pid
from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import pipelined
from benchmarks.support.processes import INTEROP, ROOT, Server, broker, free_port, name_server, scratch

QUEUES = 8
LOADS = ("push", "push 8", "lite", "ours", "sending", "cold")


@dataclass(frozen=True, slots=True)
class Consumed:
    """Messages a second, and µs of CPU a message of broker and consumer."""

    rate: float
    broker_cpu: float
    client_cpu: float


@dataclass(slots=True)
class Side:
    """A broker, its name server's address, and how to restart it with a cold log."""

    names: int
    server: Server
    restart: Callable[[], Server]


@contextmanager
def our_side() -> Iterator[Side]:
    with scratch() as directory, name_server(directory) as names, ExitStack() as resources:
        running = resources.enter_context(ExitStack())

        def restart() -> Server:
            running.close()
            _drop_from_cache(directory)
            return running.enter_context(broker(directory, names.port))

        yield Side(names.port, running.enter_context(broker(directory, names.port)), restart)


@contextmanager
def java_side() -> Iterator[Side]:
    script, names, port = str(INTEROP / "stack" / "stack"), free_port(), free_port()
    with scratch() as directory, (directory / "stack.out").open("wb") as output:

        def call(*arguments: str) -> None:
            subprocess.run(
                [script, *arguments], env=os.environ | {"BROKER_HEAP": HEAP}, stdout=output, stderr=output, check=True
            )

        def start() -> Server:
            call("start", str(directory), str(names), str(port))
            pid = listening_pid(port)
            assert pid is not None
            return Server(port, pid, directory)

        def restart() -> Server:
            call("stop", str(directory))
            _drop_from_cache(directory)
            return start()

        try:
            yield Side(names, start(), restart)
        finally:
            call("stop", str(directory))


def _drop_from_cache(directory: Path) -> None:
    """REQUIRES that the files are not mapped."""
    for path in (directory / "store").rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def fill(port: int, count: int) -> None:
    for queue in range(QUEUES):
        pipelined(port, send_frame("binary", TOPIC, queue, b"x" * 1024), 64, count // QUEUES)


def consume(side: Side, command: list[str]) -> Consumed:
    meter, before = CpuMeter(side.server.pid).start(), os.times()
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    after = os.times()
    count, ms = map(int, completed.stdout.split()[-2:])
    client = after.children_user + after.children_system - before.children_user - before.children_system
    return Consumed(count / ms * 1000, meter.read() / count * 1e6, client / count * 1e6)


def run(load: str, side: Side, clients: JavaClients, count: int) -> Consumed:
    address, total = f"127.0.0.1:{side.names}", count // QUEUES * QUEUES
    if load == "ours":
        command = [
            sys.executable, "-m", "benchmarks.consumer", "-n", address, "-t", TOPIC, "--count", str(total),
            "-g", f"ours_{time.time_ns()}",
        ]  # fmt: skip
        return consume(side, command)
    groups = 8 if load == "push 8" else 1
    command = clients.program("ConsumeLoad", address, TOPIC, "lite" if load == "lite" else "push", groups, total)
    if load != "sending":
        return consume(side, command)
    producer = subprocess.Popen(
        clients.command("sync", side.names), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(5)
        return consume(side, command)
    finally:
        producer.terminate()
        producer.wait(30)


def compare(count: int, rounds: int, loads: tuple[str, ...] = LOADS) -> dict[str, Consumed]:
    """Medians by `load/broker`; the loads in turns, `cold` once."""
    runs_by_name: dict[str, list[Consumed]] = {}
    with ExitStack() as resources:
        clients = JavaClients.compile(
            Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rocketlet-bench-")))
        )
        sides = {"java": resources.enter_context(java_side()), "ours": resources.enter_context(our_side())}
        for side in sides.values():
            fill(side.server.port, count)
            run("push", side, clients, count)
        for number in range(rounds):
            for load in loads:
                for name, side in sides.items():
                    if load == "cold":
                        if number:
                            continue
                        side.server = side.restart()
                    run_ = run(load, side, clients, count)
                    runs_by_name.setdefault(f"{load}/{name}", []).append(run_)
                    print(f"{load}/{name}", run_, file=sys.stderr, flush=True)
    return {
        name: Consumed(
            statistics.median(run_.rate for run_ in runs),
            statistics.median(run_.broker_cpu for run_ in runs),
            statistics.median(run_.client_cpu for run_ in runs),
        )
        for name, runs in runs_by_name.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", default=",".join(LOADS), help="which, with commas between")
    options = parser.parse_args()
    missing_names = missing()
    if missing_names:
        raise SystemExit(f"not possible here; missing: {', '.join(missing_names)}")
    print("load/broker      messages/s   broker's CPU   consumer's CPU")
    for name, consumed in compare(options.count, options.rounds, tuple(options.loads.split(","))).items():
        print(f"{name:14} {consumed.rate:>12,.0f} {consumed.broker_cpu:>11.2f} µs {consumed.client_cpu:>13.2f} µs")


if __name__ == "__main__":
    main()
