"""The broker's cost of a batch of 100 small messages, compared with single sends that are served one by one.

    python -m benchmarks.batch_cost [--count 3000]

64 batches in flight, and 14 sends; the medians of three runs each, in turns.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

from benchmarks.support.frames import batch_frame, send_frame
from benchmarks.support.pipeline import ONE_BY_ONE, pipelined
from benchmarks.support.processes import stack

IN_FLIGHT = 64
MESSAGES = 100
BODY = b"x" * 100


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Microseconds of the broker's CPU."""

    single: float
    batch: float
    messages_per_second: float

    @property
    def singles(self) -> float:
        """How many single sends one batch costs."""
        return self.batch / self.single


def measure(batches: int) -> BatchCost:
    """Both on one stack, in turns."""
    with stack() as (_, server):
        single = send_frame("json", "TopicTest", 1, BODY)
        batch = batch_frame("json", "TopicTest", 2, [BODY] * MESSAGES)
        pipelined(server.port, single, ONE_BY_ONE, 10_000)
        pipelined(server.port, batch, IN_FLIGHT, 200)
        single_runs, batch_runs = [], []
        for _ in range(3):
            single_runs.append(pipelined(server.port, single, ONE_BY_ONE, batches * 20))
            batch_runs.append(pipelined(server.port, batch, IN_FLIGHT, batches))
        return BatchCost(
            statistics.median(run.cpu_micros for run in single_runs),
            statistics.median(run.cpu_micros for run in batch_runs),
            statistics.median(run.rate for run in batch_runs) * MESSAGES,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="batches")
    cost = measure(parser.parse_args().count)
    print(f"single {cost.single:.1f} µs, batch of {MESSAGES} {cost.batch:.0f} µs: {cost.singles:.1f} single sends")
    print(f"{cost.messages_per_second:,.0f} messages/s in batches")


if __name__ == "__main__":
    main()
