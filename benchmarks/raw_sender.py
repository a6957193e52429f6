"""The broker's own speed: N pre-encoded sends in flight on one connection, without our client.

    python -m benchmarks.raw_sender [--port P] [--header json|binary|msgpack] [--in-flight 64] [--size 1024]

Without --port it starts its own name server and broker, in turns with the yardstick if that is found.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import Measured, pipelined
from benchmarks.support.processes import stack, yardstick

TOPIC = "TopicTest"


def measure(port: int, header: str, in_flight: int, count: int, size: int, topic: str = TOPIC) -> Measured:
    """One run against whatever listens on the port."""
    return pipelined(port, send_frame(header, topic, 2, b"x" * size), in_flight, count)


def compare(header: str, in_flight: int, count: int, size: int, rounds: int) -> tuple[list[Measured], list[Measured]]:
    """Broker and yardstick in turns, so that a slow minute of the machine affects both."""
    ours: list[Measured] = []
    limit: list[Measured] = []
    with stack() as (_, server), yardstick() as rule:
        measure(server.port, header, in_flight, min(count, 20_000), size)  # creates the topic, touches the files
        for _ in range(rounds):
            ours.append(measure(server.port, header, in_flight, count, size))
            if rule is not None:
                limit.append(measure(rule.port, header, in_flight, count, size))
    return ours, limit


def median(runs: list[Measured]) -> tuple[float, float]:
    """Median rate and median CPU a message of some runs."""
    return statistics.median(r.rate for r in runs), statistics.median(r.cpu_micros for r in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, help="a running broker with topic TopicTest or auto-creation")
    parser.add_argument("--header", choices=("json", "binary", "msgpack"), default="json")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of the body")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.port:
        run = measure(options.port, options.header, options.in_flight, options.count, options.size)
        print(f"{run.rate:,.0f} sends/s, {run.cpu_micros:.1f} µs of server CPU each")
        return
    ours, limit = compare(options.header, options.in_flight, options.count, options.size, options.rounds)
    rate, cpu = median(ours)
    print(f"broker    {rate:>10,.0f} sends/s {cpu:6.1f} µs of CPU each")
    if limit:
        limit_rate, limit_cpu = median(limit)
        print(f"yardstick {limit_rate:>10,.0f} sends/s {limit_cpu:6.1f} µs of CPU each")
        print(f"ratio     {rate / limit_rate:>10.2f} of its rate {cpu / limit_cpu:6.2f} of its CPU")
    else:
        print("no yardstick found; YARDSTICK names the directory of limit_server.py")


if __name__ == "__main__":
    main()
