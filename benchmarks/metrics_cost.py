"""The cost of metrics for a send: brokers without them, with them, and with a page requested every second, in turns.

    python -m benchmarks.metrics_cost [--count 100000] [--rounds 5]

Nothing is counted for metrics alone: a page reads what the broker counts anyway, and the clock is read once a turn.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.raw_sender import measure as sends
from benchmarks.support.processes import free_port, stack


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU a send in µs, medians; the ratios are medians over rounds, so that a slow minute affects both sides."""

    without: float
    served: float
    asked: float
    served_ratio: float
    asked_ratio: float
    pages: int


def measure(count: int, rounds: int) -> Cost:
    """Sends of 1 KiB, 64 in flight."""
    metrics_port = free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": metrics_port}
    runs: list[tuple[float, float, float]] = []
    pages: list[int] = []
    with stack() as (_, plain), stack(**settings) as (_, measured):
        for port in (plain.port, measured.port):
            sends(port, "json", 64, 10_000, 1024)  # creates the topic, touches the files
        for _ in range(rounds):
            without = sends(plain.port, "json", 64, count, 1024).cpu_micros
            served = sends(measured.port, "json", 64, count, 1024).cpu_micros
            with asking(f"http://127.0.0.1:{metrics_port}/metrics", pages):
                asked = sends(measured.port, "json", 64, count, 1024).cpu_micros
            runs.append((without, served, asked))
    return Cost(
        *(statistics.median(column) for column in zip(*runs, strict=True)),
        statistics.median(served / without for without, served, _ in runs),
        statistics.median(asked / without for without, _, asked in runs),
        len(pages),
    )


@contextmanager
def asking(url: str, pages: list[int]) -> Iterator[None]:
    """Request the page every second inside the block; the sizes of the answers go to `pages`."""
    ended = threading.Event()

    def ask() -> None:
        while True:
            pages.append(len(urllib.request.urlopen(url, timeout=10).read()))
            if ended.wait(1.0):
                return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    start_time = time.monotonic()
    cost = measure(options.count, options.rounds)
    print(f"without metrics        {cost.without:6.2f} µs of CPU a send")
    print(f"served                 {cost.served:6.2f} µs, {cost.served_ratio:.3f} of it")
    print(f"asked for each second  {cost.asked:6.2f} µs, {cost.asked_ratio:.3f} of it; {cost.pages} pages")
    print(f"{options.rounds} rounds in {time.monotonic() - start_time:.0f} s")


if __name__ == "__main__":
    main()
