"""The slowest messages: from `send` to the listener at a fixed rate, on our broker and a Java broker in turns.

    python -m benchmarks.tails [--rates 1000,10000] [--seconds 20] [--rounds 2]

The official client on both sides, in one process (benchmarks/java/LatencyLoad.java). Sends are made when due, and
measured from then. Both brokers save tables and count statistics while it runs; their log files are small (16 MiB), as
are their index files (20,000 entries), so that these turn over, and a full file has expired at once, so that retention
deletes it within 10 seconds.

Needed: as for `beside_java`.

Java: (none)
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_java import JavaClients, java_stack, missing
from benchmarks.support.processes import ROOT, stack

SMALL = {
    "mappedFileSizeCommitLog": 16 << 20,
    "maxIndexNum": 20_000,
    "maxHashSlotNum": 5_000,
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}
WARM_UP_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Tail:
    """Milliseconds by percentile."""

    p50: float
    p90: float
    p99: float
    p999: float
    longest: float
    failed: int


def run(clients: JavaClients, names: int, rate: int, seconds: int) -> Tail:
    command = clients.program("LatencyLoad", f"127.0.0.1:{names}", f"tails_{rate}", rate, WARM_UP_SECONDS, seconds)
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=seconds + WARM_UP_SECONDS + 60
    )
    _, failed, *micros = map(int, completed.stdout.split()[-7:])
    return Tail(*(value / 1000 for value in micros), failed)


def compare(rates: list[int], seconds: int, rounds: int) -> dict[str, list[Tail]]:
    """Runs by `rate/broker`, in turns."""
    tails: dict[str, list[Tail]] = {}
    with ExitStack() as resources:
        clients = JavaClients.compile(
            Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rocketlet-bench-")))
        )
        java_names, _ = resources.enter_context(java_stack(**SMALL))
        our_names, _ = resources.enter_context(stack(**SMALL))
        run(clients, java_names, 10_000, 10)  # lets the JVM compile
        for _ in range(rounds):
            for rate in rates:
                for name, names in (("java", java_names), ("ours", our_names.port)):
                    tail = run(clients, names, rate, seconds)
                    tails.setdefault(f"{rate}/{name}", []).append(tail)
                    print(f"{rate}/{name}", tail, file=sys.stderr, flush=True)
    return tails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1000,10000", help="messages a second, with commas between")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    missing_names = missing()
    if missing_names:
        raise SystemExit(f"not possible here; missing: {', '.join(missing_names)}")
    print("rate/broker     p50      p90      p99     p99.9   longest   failed   (ms; medians of the runs)")
    for name, runs in compare(
        [int(rate) for rate in options.rates.split(",")], options.seconds, options.rounds
    ).items():
        parts = [statistics.median(getattr(tail, part) for tail in runs) for part in ("p50", "p90", "p99", "p999")]
        longest, failed = max(tail.longest for tail in runs), sum(tail.failed for tail in runs)
        print(f"{name:11} " + " ".join(f"{part:8.2f}" for part in (*parts, longest)) + f" {failed:8}")


if __name__ == "__main__":
    main()
