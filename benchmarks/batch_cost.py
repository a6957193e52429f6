"""What a batch of 100 small messages costs the broker, in single sends' CPU.

python -m benchmarks.batch_cost [--count 3000]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from benchmarks.support.frames import batch_frame, send_frame
from benchmarks.support.pipeline import pipelined
from benchmarks.support.processes import stack

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
    """Both on one stack, 64 and 8 in flight."""
    with stack() as (_, server):
        single = send_frame("json", "TopicTest", 1, BODY)
        batch = batch_frame("json", "TopicTest", 2, [BODY] * MESSAGES)
        pipelined(server.port, single, 64, 10_000)
        pipelined(server.port, batch, 8, 100)
        one = pipelined(server.port, single, 64, batches * 20)
        many = pipelined(server.port, batch, 8, batches)
        return BatchCost(one.cpu_micros, many.cpu_micros, many.rate * MESSAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="batches")
    found = measure(parser.parse_args().count)
    print(f"single {found.single:.1f} µs, batch of {MESSAGES} {found.batch:.0f} µs: {found.singles:.1f} single sends")
    print(f"{found.messages_per_second:,.0f} messages/s in batches")


if __name__ == "__main__":
    main()
