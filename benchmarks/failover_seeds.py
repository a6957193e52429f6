"""Whole brokers in virtual time under all kinds of failures, seed after seed: the runs of
`tests/failover/test_seeds.py`.

    PYTHONHASHSEED=0 python -m benchmarks.failover_seeds [FIRST [COUNT]]

A seed takes some 0.4 s of CPU. Failures are reported, and the run continues. With PYTHONHASHSEED a seed repeats the
same run; several processes can run different ranges.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

import trio
from trio.testing import MockClock

from tests.failover.test_seeds import run_seed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=1)
    parser.add_argument("count", type=int, nargs="?", default=100)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed: list[int] = []
    acked = crashes = 0
    for seed in range(options.first, options.first + options.count):
        try:
            run = trio.run(run_seed, seed, clock=MockClock(autojump_threshold=0))
            acked, crashes = acked + len(run.acked), crashes + run.cluster.crashes
        except Exception as error:  # noqa: BLE001 - told, and the next one runs
            failed.append(seed)
            print(f"seed {seed} failed", flush=True)
            traceback.print_exception(error, file=sys.stdout)
        done = seed - options.first + 1
        if done % 100 == 0 or done == options.count:
            summary = (
                f"{acked} acknowledged, {crashes} crashes at a call of the disk, {time.process_time():.0f} s of CPU"
            )
            print(f"seeds {options.first} to {seed}: {summary}; failed: {failed}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
