"""Our broker, the yardstick and a Java broker in turns under RocketMQ's own client; our client beside the Java client.

    python -m benchmarks.beside_java [--rounds 3] [--window 15] [--loads sync,async,unbounded]

Loads of 1 KiB on one connection, default flush: `sync`, RocketMQ's benchmark producer with 64 threads; `async`, 4
threads of the official client that keep 256 sends each in flight (benchmarks/java/AsyncLoad.java, compiled here);
`unbounded`, RocketMQ's benchmark producer with `-w 4 -y true`, which sends as fast as it can until 65,535 sends are in
flight. All send binary headers. Each run warms the client up for ten seconds and measures the next ones; before the
first the Java broker is warmed up for a minute. CPU is the kernel's, of the broker's process and of the client's.
Failed sends are counted: those the client gave up after 3 s, and those a broker refused as too busy.

Needed: java, javac, mvn, and INTEROP, the directory that holds `stack/stack`. `unbounded` needs a benchmark producer
that knows `-y`, which the one on Maven Central does not: ROCKETMQ_EXAMPLE names the rocketmq-example jar of a binary
distribution (`lib/`, 4.9.0 or later) or a directory of its classes. Without it, that load is skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.cpu import CpuMeter, listening_pid
from benchmarks.support.processes import INTEROP, ROOT, Server, free_port, scratch, stack, yardstick

HEAP = "-Xms2g -Xmx2g -Xmn1g -XX:MaxDirectMemorySize=2g"
TOPIC = "TopicTest"
WARM_UP = 60.0
CLIENT_WARM_UP = 10.0
LOADS = ("sync", "async", "unbounded")
EXAMPLE = os.environ.get("ROCKETMQ_EXAMPLE", "")
_SENT = re.compile(r"Send TPS: (\d+).*?Send Failed: (\d+).*?Response Failed: (\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one broker: messages a second, µs of CPU a message of both processes, sends that failed."""

    rate: float
    broker_cpu: float
    client_cpu: float
    failed: int


def missing() -> list[str]:
    """Missing requirements of the comparison."""
    missing_names = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if not (INTEROP / "stack" / "stack").exists():
        missing_names.append(f"INTEROP: no {INTEROP / 'stack' / 'stack'}")
    return missing_names


def library() -> Path:
    """The folder of the jars of `stack setup`, which fetches them if necessary."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    jars = Path(os.environ.get("ROCKETLET_JAVA_LIB", cache / "rocketlet-java" / "lib"))
    if not list(jars.glob("rocketmq-broker-*.jar")):
        subprocess.run([str(INTEROP / "stack" / "stack"), "setup"], check=True)
    return jars


@contextmanager
def java_stack(**settings: object) -> Iterator[tuple[int, Server]]:
    """A Java name server's port and a Java broker, with the heap that a comparison needs; `settings` of the broker."""
    script, names, port = str(INTEROP / "stack" / "stack"), free_port(), free_port()
    with scratch() as directory:
        environment = os.environ | {"BROKER_HEAP": HEAP}
        # Its servers outlive the script and keep inherited descriptors, so their output goes to a file, not to a pipe.
        with (directory / "stack.out").open("wb") as output:
            started = subprocess.run(
                [script, "start", str(directory), str(names), str(port), *(f"{k}={v}" for k, v in settings.items())],
                env=environment, stdout=output, stderr=output, check=False,
            )  # fmt: skip
        try:
            pid = listening_pid(port)
            if started.returncode or pid is None:
                raise RuntimeError(f"the Java stack did not start:\n{(directory / 'stack.out').read_text()}")
            yield names, Server(port, pid, directory)
        finally:
            subprocess.run([script, "stop", str(directory)], stdout=subprocess.DEVNULL, check=False)


@dataclass(frozen=True, slots=True)
class JavaClients:
    """Starts the loads of the official client, with AsyncLoad compiled into a directory."""

    classes: Path
    jars: Path

    @staticmethod
    def compile(directory: Path) -> JavaClients:
        jars = library()
        sources = map(str, (ROOT / "benchmarks" / "java").glob("*.java"))
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(directory), *sources], check=True)
        return JavaClients(directory, jars)

    def program(self, name: str, *arguments: object) -> list[str]:
        """The command line of a program of benchmarks/java."""
        return [
            "java", "-Xms256m", "-Xmx1g", f"-Drocketmq.client.logRoot={self.classes}/logs",
            "-Drocketmq.client.logLevel=WARN", "-Drocketmq.serialize.type=ROCKETMQ",
            "-cp", f"{self.classes}:{self.jars}/*", name, *map(str, arguments),
        ]  # fmt: skip

    def command(self, load: str, names: int) -> list[str]:
        """The command line of a load."""
        address = f"127.0.0.1:{names}"
        if load == "unbounded":
            return [
                "java", "-Xms512m", "-Xmx1g", f"-Drocketmq.client.logRoot={self.classes}/logs",
                "-Drocketmq.client.logLevel=WARN", "-cp", f"{EXAMPLE}:{self.jars}/*",
                "org.apache.rocketmq.example.benchmark.Producer", "-n", address, "-t", TOPIC, "-w", "4", "-y", "true",
                "-s", "1024",
            ]  # fmt: skip
        if load == "sync":
            return [
                str(INTEROP / "stack" / "stack"), "bench", "producer", "-n", address, "-t", TOPIC, "-w", "64", "-s",
                "1024",
            ]  # fmt: skip
        return [
            "java", "-Xms64m", "-Xmx512m", f"-Drocketmq.client.logRoot={self.classes}/logs",
            "-cp", f"{self.classes}:{self.jars}/*", "AsyncLoad", address, TOPIC, "4", "1024", "256",
        ]  # fmt: skip


class Counter:
    """Reads the lines of a load as they arrive: messages sent and failed since its start."""

    def __init__(self, load: str, path: Path) -> None:
        self._load = load
        self._path = path

    def totals(self) -> tuple[float, int, int]:
        """(messages sent, failed, lines) by now."""
        text = self._path.read_text()
        if self._load == "async":
            lines = [line.split() for line in text.splitlines() if re.fullmatch(r"\d+ \d+", line)]
            return sum(int(sent) for sent, _ in lines), sum(int(failed) for _, failed in lines), len(lines)
        reports = _SENT.findall(text)
        # The benchmark producer prints the rate of ten seconds, and the failures since its start.
        failed = int(reports[-1][1]) + int(reports[-1][2]) if reports else 0
        return sum(10.0 * int(rate) for rate, _, _ in reports), failed, len(reports)


def run(load: str, command: list[str], broker: Server, window: float) -> Run:
    """One load on one broker. The window begins and ends with a line of the load, so that its count is exact."""
    with tempfile.TemporaryDirectory(prefix="rocketlet-bench-") as directory:
        path = Path(directory) / "out"
        with path.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        counter = Counter(load, path)
        try:
            start_time = time.monotonic()
            sent, failed, lines = _next_line(process, counter, 0, start_time + CLIENT_WARM_UP)
            meters, at = [CpuMeter(pid).start() for pid in (broker.pid, process.pid)], time.monotonic()
            more_sent, more_failed, _ = _next_line(process, counter, lines, at + window)
            messages, seconds = more_sent - sent, time.monotonic() - at
            broker_cpu, client_cpu = (meter.read() / messages * 1e6 for meter in meters)
            return Run(messages / seconds, broker_cpu, client_cpu, more_failed - failed)
        finally:
            process.terminate()
            process.wait(30)


def _next_line(
    process: subprocess.Popen[bytes], counter: Counter, lines: int, not_before: float
) -> tuple[float, int, int]:
    """The totals at the first line after a given time."""
    pause = 0.02
    while True:
        totals = counter.totals()
        if totals[2] > lines and time.monotonic() >= not_before:
            return totals
        if time.monotonic() < not_before:
            lines = max(lines, totals[2])
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended:\n{counter._path.read_text()[-2000:]}")
        if time.monotonic() > not_before + 60:
            raise RuntimeError(f"{process.args!r} says nothing:\n{counter._path.read_text()[-2000:]}")
        time.sleep(pause)


def our_client(names: int, broker: Server, seconds: float, *, pipelined: bool) -> Run:
    """Our benchmark producer on a broker: 64 synchronous threads, or 4 that keep 256 sends in flight each."""
    mode = ["-w", "4", "-y", "true", "--in-flight", "256"] if pipelined else ["-w", "64"]
    command = [
        sys.executable, "-m", "benchmarks.producer", "-n", f"127.0.0.1:{names}", "-t", TOPIC, "-s", "1024",
        "--seconds", str(seconds), *mode,
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    meter = CpuMeter(broker.pid).start()
    before = os.times()
    text, _ = process.communicate()
    after = os.times()
    totals = re.search(r"Send Total: (\d+) .*Send Failed: (\d+) \| Response Failed: (\d+)", text)
    if process.returncode or totals is None:
        raise RuntimeError(f"our producer ended with {process.returncode}: {text}")
    sent = int(totals[1])
    client = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(sent / seconds, meter.read() / sent * 1e6, client / sent * 1e6, int(totals[2]) + int(totals[3]))


def possible_loads() -> tuple[str, ...]:
    """The loads that can run here."""
    return tuple(load for load in LOADS if load != "unbounded" or EXAMPLE)


def compare(rounds: int, window: float, loads: tuple[str, ...]) -> dict[str, list[Run]]:
    """Runs by `load/broker`, in turns; and of our client on our broker as `load/our client`."""
    runs: dict[str, list[Run]] = {}
    with ExitStack() as resources:
        clients = JavaClients.compile(
            Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rocketlet-bench-")))
        )
        java_names, java = resources.enter_context(java_stack())
        our_names, ours = resources.enter_context(stack())
        brokers = {"java": (java_names, java), "ours": (our_names.port, ours)}
        rule = resources.enter_context(yardstick())
        if rule is not None:
            brokers["yardstick"] = (rule.port, rule)  # it also answers as a name server
        for names, server in brokers.values():
            run("async", clients.command("async", names), server, WARM_UP if server is java else 5.0)
        for _ in range(rounds):
            for load in loads:
                for name, (names, server) in brokers.items():
                    runs.setdefault(f"{load}/{name}", []).append(
                        run(load, clients.command(load, names), server, window)
                    )
                if load != "unbounded":
                    runs.setdefault(f"{load}/our client", []).append(
                        our_client(our_names.port, ours, window, pipelined=load == "async")
                    )
    return runs


def median(runs: list[Run]) -> Run:
    """Medians of each figure; failures are summed."""
    return Run(
        statistics.median(run.rate for run in runs),
        statistics.median(run.broker_cpu for run in runs),
        statistics.median(run.client_cpu for run in runs),
        sum(run.failed for run in runs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=15.0, help="seconds that each run measures")
    parser.add_argument("--loads", default=",".join(possible_loads()), help="which, with commas between")
    options = parser.parse_args()
    missing_names = missing()
    if missing_names:
        raise SystemExit(f"not possible here; missing: {', '.join(missing_names)}")
    if not EXAMPLE:
        print("left out: unbounded; ROCKETMQ_EXAMPLE names no rocketmq-example jar of 4.9")
    print("load/broker             messages/s   broker's CPU   client's CPU   failed")
    for name, runs in compare(options.rounds, options.window, tuple(options.loads.split(","))).items():
        medians = median(runs)
        print(
            f"{name:21} {medians.rate:>12,.0f} {medians.broker_cpu:>11.1f} µs {medians.client_cpu:>11.1f} µs"
            f" {medians.failed:>8}"
        )


if __name__ == "__main__":
    main()
