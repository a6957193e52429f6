"""Brokers in separate processes on the cores of one host: one, then two, with a driver for each.

    python -m benchmarks.brokers [--count 100000] [--brokers 2]

RocketMQ scales by adding brokers. The drivers use cores too: on a machine with two cores, two brokers and two drivers
share them, so the combined rate says little, and the CPU per message shows what one more core would carry.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import Measured, pipelined
from benchmarks.support.processes import broker, name_server, scratch

IN_FLIGHT = 256
SIZE = 1024
TURNS = 3


@dataclass(frozen=True, slots=True)
class Together:
    """The combined results of several brokers."""

    brokers: int
    rate: float
    cpu_micros: float
    """Of a broker, for each message."""


def measure(count: int, most: int) -> list[Together]:
    """Rates with one broker, two and so on, in turns; medians."""
    with ExitStack() as running:
        directory = running.enter_context(scratch())
        names = running.enter_context(name_server(directory))
        ports = []
        for number in range(most):
            folder = directory / f"broker-{number}"
            folder.mkdir()
            server = running.enter_context(broker(folder, names.port, brokerName=f"broker-{number}"))
            ports.append(server.port)
        drivers = running.enter_context(ThreadPoolExecutor(most))
        frame = send_frame("binary", "TopicTest", 0, b"x" * SIZE)
        turns = [[_send(drivers, ports[:used], frame, count) for used in range(1, most + 1)] for _ in range(TURNS + 1)]
    return [_median(used, [turn[used - 1] for turn in turns[1:]]) for used in range(1, most + 1)]


def _send(drivers: ThreadPoolExecutor, ports: Sequence[int], frame: bytes, count: int) -> list[Measured]:
    return list(drivers.map(lambda port: pipelined(port, frame, IN_FLIGHT, count), ports))


def _median(brokers: int, turns: Sequence[Sequence[Measured]]) -> Together:
    rate = statistics.median(sum(run.requests for run in turn) / max(run.seconds for run in turn) for turn in turns)
    return Together(brokers, rate, statistics.median(run.cpu_micros for turn in turns for run in turn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="messages to each broker in each turn")
    parser.add_argument("--brokers", type=int, default=2)
    options = parser.parse_args()
    for together in measure(options.count, options.brokers):
        print(
            f"{together.brokers} brokers {together.rate:>10,.0f}/s {together.cpu_micros:6.1f} µs of a broker's CPU"
            " a message"
        )


if __name__ == "__main__":
    main()
