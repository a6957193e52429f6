"""Our broker beside NATS JetStream and Redis streams, one Python client process each, in turns.

    python -m benchmarks.peers [--rounds 3] [--count 60000] [--only nats] [--load latency]

The servers are those of the system (`nats-server` with a stream in files, `redis-server` with an append-only file that
is written every second), the clients nats-py and redis-py with hiredis (`pip install rocketlet[peers]`). Missing ones
are named and skipped. All loads use messages of 1 KiB (`peer_clients/load.py`). CPU is that of the client's
process and of the server's, in microseconds a message.

Redis has no window of sends: its clients write so many commands, then read as many answers. JetStream stores each
message by itself, so it has no atomic batches.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.budgets import OUR_CLIENT
from benchmarks.peer_clients.load import LOADS, RATE
from benchmarks.support.cpu import CpuMeter
from benchmarks.support.processes import ROOT, Server, free_port, running, scratch, stack

OURS = OUR_CLIENT
PEERS = {"nats": ("nats-server", ("nats",)), "redis": ("redis-server", ("redis", "hiredis"))}
_SMALL = {"sync": 6, "latency": 15}  # these loads handle this many times fewer messages

Figures = dict[str, float]


def missing(peer: str) -> list[str]:
    """A peer's missing requirements."""
    program, modules = PEERS[peer]
    missing_names = [name for name in modules if importlib.util.find_spec(name) is None]
    return missing_names if shutil.which(program) else [program, *missing_names]


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server, and the address that its clients take."""

    name: str
    address: str
    pid: int


@contextmanager
def started(name: str) -> Iterator[Peer]:
    """A peer's server in a scratch directory."""
    if name == OURS:
        with stack() as (names, server):
            yield Peer(name, f"127.0.0.1:{names.port}", server.pid)
        return
    port = free_port()
    with scratch() as directory:
        arguments = {
            "nats": ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)],
            "redis": [
                "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", "",
                "--appendonly", "yes", "--appendfsync", "everysec",
            ],
        }[name]  # fmt: skip
        with running(arguments, port, directory, name) as server:
            yield _peer(name, server)


def _peer(name: str, server: Server) -> Peer:
    return Peer(name, f"127.0.0.1:{server.port}", server.pid)


def run(peer: Peer, load: str, count: int) -> Figures:
    """One load in a separate client process."""
    meter = CpuMeter(peer.pid).start()
    completed = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peer_clients.{peer.name}", load, peer.address, str(count)],
        cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120,
    )  # fmt: skip
    figures: Figures = json.loads(completed.stdout)
    # The server's work before and after the measured load, such as filling a topic, is included.
    return figures | {"server_cpu": meter.read() / count * 1e6}


def compare(names: Sequence[str], loads: Sequence[str], count: int, rounds: int) -> dict[tuple[str, str], Figures]:
    """Medians by load and peer; each round runs every load at every peer, one after the other."""
    runs_by_place: dict[tuple[str, str], list[Figures]] = {}
    with ExitStack() as servers:
        peers = [servers.enter_context(started(name)) for name in names]
        for _ in range(rounds):
            for load in loads:
                for peer in peers:
                    if load == "atomic 64" and peer.name == "nats":
                        continue
                    small = count // _SMALL.get(load, 1)
                    runs_by_place.setdefault((load, peer.name), []).append(run(peer, load, small))
    return {
        place: {name: statistics.median(run_[name] for run_ in runs) for name in runs[0]}
        for place, runs in runs_by_place.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--only", nargs="*", choices=(OURS, *PEERS), default=[OURS, *PEERS])
    parser.add_argument("--load", nargs="*", choices=LOADS, default=LOADS)
    options = parser.parse_args()
    names = []
    for name in options.only:
        missing_names = missing(name) if name in PEERS else []
        if missing_names:
            print(f"{name} is left out; missing: {', '.join(missing_names)}")
        else:
            names.append(name)
    results = compare(names, options.load, options.count, options.rounds)
    print("load            peer         messages/s   client's CPU   server's CPU")
    for (load, name), result in results.items():
        if load != "latency":
            print(
                f"{load:15} {name:10} {result['rate']:>12,.0f} {result['cpu']:>11.1f} µs"
                f" {result['server_cpu']:>11.1f} µs"
            )
    for (load, name), result in results.items():
        if load == "latency":
            percentiles = ", ".join(f"{what} {result[what]:,.0f} µs" for what in ("p50", "p99", "p99.9"))
            print(f"send to listener at {RATE:g}/s, {name}: {percentiles}; {result['cpu']:.0f} µs of the client's CPU")


if __name__ == "__main__":
    main()
