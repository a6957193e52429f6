"""Sync flush compared with the disk: its fdatasync rate times the sends in flight.

    python -m benchmarks.sync_flush [--count 20000]

ROCKETLET_BENCH_DIR chooses the disk.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import Measured, pipelined
from benchmarks.support.processes import scratch, stack

KIB = 1024


def fdatasync_rate(directory: Path, seconds: float = 2.0) -> float:
    """How many times per second 1 KiB can be written and synced, sequentially."""
    path = directory / "probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, 64 << 20)
        rounds, start_time = 0, time.perf_counter()
        while time.perf_counter() - start_time < seconds:
            os.pwrite(descriptor, b"x" * KIB, rounds * KIB % (64 << 20))
            os.fdatasync(descriptor)
            rounds += 1
        return rounds / (time.perf_counter() - start_time)
    finally:
        os.close(descriptor)
        path.unlink()


def measure(count: int, in_flight: list[int]) -> tuple[float, dict[int, Measured]]:
    """The disk's own rate, and the broker's for each number in flight."""
    with scratch() as directory:
        disk = fdatasync_rate(directory)
    with stack(flushDiskType="SYNC_FLUSH") as (_, server):
        request = send_frame("json", "TopicTest", 2, b"x" * KIB)
        pipelined(server.port, request, 8, 500)
        return disk, {
            n: pipelined(server.port, request, n, max(500, count if n > 1 else count // 10)) for n in in_flight
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    options = parser.parse_args()
    disk, runs = measure(options.count, [1, 8, 64, 512])
    print(f"fdatasync alone  {disk:>9,.0f}/s")
    for n, run in runs.items():
        times = run.rate / disk
        print(f"{n:4} in flight   {run.rate:>9,.0f}/s  {times:6.2f} x the disk's rate, {run.cpu_micros:.1f} µs each")


if __name__ == "__main__":
    main()
