"""Shared by the client processes of all peers: arguments, the clock, and the printed figures.

A load handles `count` messages of 1 KiB; preparations before `began()` are not measured. `latency` sends by the clock,
500 a second, and reports percentiles from the sending call to the listener; the body carries the time.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections.abc import Callable, Mapping

SIZE = 1024
BATCH = 64
RATE = 500.0
LOADS = ("sync", "pipelined 256", "pipelined 1024", "atomic 64", "each", "batches", "latency")
PERCENTILES = (50.0, 99.0, 99.9)
BODY = b"x" * SIZE

_time = struct.Struct("d")


class Stopwatch:
    """Wall time and CPU of this process, from `began` to `ended`."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    def began(self) -> None:
        self._at, self._cpu = time.perf_counter(), time.process_time()

    def ended(self) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._at, time.process_time() - self._cpu


class Latencies:
    """The latency of messages, from the times in their bodies."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def arrived(self, body: bytes) -> None:
        self.seconds.append(time.perf_counter() - _time.unpack_from(body)[0])

    def percentiles(self) -> dict[str, float]:
        """Microseconds by percentile; the first hundred, during which routes and connections are set up, are left
        out."""
        ordered = sorted(self.seconds[100:])
        return {f"p{p:g}": ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] * 1e6 for p in PERCENTILES}


def stamped() -> bytes:
    """A body with the current time."""
    return _time.pack(time.perf_counter()) + BODY[_time.size :]


def moments(count: int) -> list[float]:
    """When each message is due, by `time.perf_counter`."""
    first = time.perf_counter() + 0.5
    return [first + number / RATE for number in range(count)]


Load = Callable[[str, int, Stopwatch, Latencies], None]
"""Runs a load: address, messages, what to start and stop, where latencies go."""


def main(loads: Mapping[str, Load]) -> None:
    """Run the load named on the command line and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=loads)
    parser.add_argument("address")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    watch, latencies = Stopwatch(), Latencies()
    loads[options.load](options.address, options.count, watch, latencies)
    figures = {"rate": options.count / watch.seconds, "cpu": watch.cpu / options.count * 1e6}
    if latencies.seconds:
        figures |= latencies.percentiles()
    print(json.dumps(figures))
