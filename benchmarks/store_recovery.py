"""How fast a store recovers: MB of log per second, for each kind of start.

    python -m benchmarks.store_recovery [--mib 1024] [--size 1024] [--directory DIR]

A log of that length is written, then opened repeatedly: cleanly closed (nothing to read); after a crash with the whole
log to read; without the queues; without the index; without both, which rebuilds everything.
Each opening verifies every body's CRC.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import time
from collections.abc import Callable

import trio

from benchmarks.support.stores import directory, fill, opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--directory")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # the recovery's log lines are not measured
    with directory(options.directory) as path:
        trio.run(write, path, options.mib, options.size)
        print(f"log of {options.mib} MiB, bodies of {options.size} bytes")
        for name, damage in CASES.items():
            damage(path)
            seconds, cpu, records = trio.run(reopen, path)
            rate = options.mib * 1.048576 / seconds
            print(
                f"{name:<24} {seconds:6.2f} s, {cpu:6.2f} s of CPU, {records:>9,} records looked at"
                + (f", {rate:,.0f} MB/s" if records else "")
            )


async def write(path: str, mib: int, size: int) -> None:
    async with opened(path, seal_enable=False) as store:
        fill(store, (mib << 20) // (size + 260), size)


async def reopen(path: str) -> tuple[float, float, int]:
    start_time, start_cpu = time.perf_counter(), time.process_time()
    async with opened(path, seal_enable=False) as store:
        seconds, cpu = time.perf_counter() - start_time, time.process_time() - start_cpu
        records = store.report.records
    return seconds, cpu, records


def crash(path: str) -> None:
    os.unlink(f"{path}/rocketlet/progress.json")
    open(f"{path}/abort", "w").close()


def without_queues(path: str) -> None:
    crash(path)
    shutil.rmtree(f"{path}/consumequeue")


def without_index(path: str) -> None:
    crash(path)
    shutil.rmtree(f"{path}/index")


def without_both(path: str) -> None:
    without_queues(path)
    shutil.rmtree(f"{path}/index")


CASES: dict[str, Callable[[str], object]] = {
    "cleanly closed": lambda path: None,
    "after a crash, all sound": crash,
    "queues gone": without_queues,
    "index gone": without_index,
    "queues and index gone": without_both,
}

if __name__ == "__main__":
    main()
