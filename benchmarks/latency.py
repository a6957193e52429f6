"""End-to-end latency at a fixed rate: from `send` to the listener, through our client, with percentiles.

    python -m benchmarks.latency [--rate 1000] [--seconds 10]

Sends are paced by the clock and not by the answers (no coordinated omission): a late send counts from when it was due.
The lateness of a thread that only waits for the clock is reported too: no program can be more punctual.
"""

from __future__ import annotations

import argparse
import threading
import time
from dataclasses import dataclass

from benchmarks.support.processes import stack
from rocketlet import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds by percentile, and the number of messages; the same for a thread's wakeups."""

    count: int
    by_percentile: dict[float, float]
    waking: dict[float, float]


def percentiles(seconds: list[float]) -> dict[float, float]:
    """Milliseconds by percentile."""
    ordered = sorted(seconds)
    return {p: ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] * 1000 for p in PERCENTILES}


def measure(rate: float, seconds: float, size: int = 1024) -> Latencies:
    """One run on its own stack."""
    arrived: list[float] = []
    late: list[float] = []
    total = int(rate * seconds)
    all_here = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        arrived.append(time.perf_counter() - float(message.properties["due"]))
        if len(arrived) >= total:
            all_here.set()

    with stack() as (names, _):
        namesrv = f"127.0.0.1:{names.port}"
        with (
            Producer("latency", namesrv=namesrv) as producer,
            PushConsumer(
                "latency", listener, topics={"TopicTest": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
            ),
        ):
            producer.send(Message("TopicTest", b"x", properties={"due": str(time.perf_counter())}))
            pause = threading.Event()
            start_time = time.perf_counter() + 1.0
            for number in range(total):
                due = start_time + number / rate
                left = due - time.perf_counter()
                if left > 0:
                    pause.wait(left)
                    late.append(max(0.0, time.perf_counter() - due))
                producer.send_soon(Message("TopicTest", b"x" * size, properties={"due": repr(due)}))
            all_here.wait(30)
    return Latencies(len(arrived) - 1, percentiles(arrived[1:]), percentiles(late))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    latencies = measure(options.rate, options.seconds)
    print(f"{latencies.count} messages at {options.rate:,.0f}/s")
    for percentile, ms in latencies.by_percentile.items():
        print(f"p{percentile:<5g} {ms:8.2f} ms    a waiting thread wakes {latencies.waking[percentile]:8.2f} ms late")


if __name__ == "__main__":
    main()
