"""Memory of the broker under a long load: sends, pulls of the same messages, and clients that come and go.

    python -m benchmarks.endurance [--minutes 60] [--rate 2000]

Each second's messages are sent at once and pulled again, and a connection is opened, used and closed. Memory is the
resident set without mapped files, which belong to the page cache. Growth is the median of the last third of the run
compared with the second third; the first is left out, because caches fill.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.pull import pull_all
from benchmarks.support.cpu import CpuMeter, resident_bytes
from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import check_answer, connect, exchange, pipelined
from benchmarks.support.processes import Server, stack

TOPIC = "TopicTest"
SAMPLE_SECONDS = 10.0
PULLED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Endured:
    """Samples of (seconds, bytes), messages sent, CPU seconds of the broker."""

    samples: list[tuple[float, int]]
    messages: int
    cpu: float

    @property
    def growth(self) -> float:
        """Median memory of the last third over that of the second."""
        third = len(self.samples) // 3
        sizes = [size for _, size in self.samples]
        return statistics.median(sizes[-third:]) / statistics.median(sizes[third : 2 * third])


def measure(minutes: float, rate: int, tell: Callable[[float, int], object]) -> Endured:
    """Load a stack for that long; `tell` is called with each sample."""
    request = send_frame("json", TOPIC, 2, b"x" * 1024)
    with stack() as (_, server):
        samples: list[tuple[float, int]] = []
        meter, start_time = CpuMeter(server.pid).start(), time.monotonic()
        messages, second, next_sample = 0, 0, 0.0
        while (now := time.monotonic() - start_time) < minutes * 60:
            if now >= next_sample:
                samples.append((now, resident_bytes(server.pid)))
                tell(*samples[-1])
                next_sample += SAMPLE_SECONDS
            messages += _one_second(server, request, rate)
            second += 1
            time.sleep(max(0.0, start_time + second - time.monotonic()))
        return Endured(samples, messages, meter.read())


def _one_second(server: Server, request: bytes, rate: int) -> int:
    pipelined(server.port, request, 64, rate)
    with connect(server.port) as passer_by:
        check_answer(exchange(passer_by, send_frame("binary", TOPIC, 1, b"x" * 100)))
    pull_all(server, TOPIC, 2, min(rate, 20 * PULLED_AT_ONCE))
    return rate + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    options = parser.parse_args()

    def tell(seconds: float, size: int) -> None:
        if round(seconds / SAMPLE_SECONDS) % 6 == 0:
            print(f"{seconds / 60:6.1f} min {size / 1e6:8.1f} MB", flush=True)

    endured = measure(options.minutes, options.rate, tell)
    print(
        f"{endured.messages:,} messages, {endured.cpu:.0f} s of CPU; the last third holds {endured.growth:.3f} times"
        " the memory of the second"
    )


if __name__ == "__main__":
    main()
