"""The cost of a message in the store: record, queue entry and two index entries, without network and flush.

    python -m benchmarks.store_append [--count 200000] [--size 1024] [--directory DIR]

For turns of 1, 8, 32 and 128 messages, the best of three runs each: µs a message of wall time and of CPU, and how much
of it `put` (the log) and `settle` (queues and index) take. The budget is 8 µs of CPU for 1 KiB in turns of 32. Before
them the floor: the same number of 1 KiB slices copied into a fresh mapping, page faults and all.
"""

from __future__ import annotations

import argparse
import gc
import time

import trio

from benchmarks.support.stores import directory, messages, opened
from rocketlet.store.message import Put
from rocketlet.store.real_disk import RealDisk

BUDGET = 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--directory")
    options = parser.parse_args()
    with directory(options.directory) as path:
        print(
            f"floor: {floor(path, options.count, options.size):.2f} µs to copy {options.size} bytes into a fresh file"
        )
    puts = messages(options.count, options.size)
    gc.freeze()
    for turn in (1, 8, 32, 128):
        wall, cpu, put, settle = min(trio.run(append, puts, turn, options.directory) for _ in range(3))
        verdict = ""
        if turn == 32 and options.size == 1024:
            verdict = f"; budget {BUDGET:g} µs of CPU: {'kept' if cpu <= BUDGET else 'EXCEEDED'}"
        print(
            f"turns of {turn:>3}: {wall:.2f} µs a message, CPU {cpu:.2f}; put {put:.2f}, settle {settle:.2f}{verdict}"
        )


async def append(puts: list[Put], turn: int, under: str | None) -> tuple[float, float, float, float]:
    """µs a message: wall, CPU, put, settle."""
    with directory(under) as path:
        async with opened(path) as store:
            in_put = 0.0
            start_time, cpu = time.perf_counter(), time.process_time()
            for begin in range(0, len(puts), turn):
                start = time.perf_counter()
                for message in puts[begin : begin + turn]:
                    store.put(message)
                in_put += time.perf_counter() - start
                store.settle()
            wall, cpu = time.perf_counter() - start_time, time.process_time() - cpu
    count = len(puts) / 1e6
    return wall / count, cpu / count, in_put / count, (wall - in_put) / count


def floor(path: str, count: int, size: int) -> float:
    """µs to copy a body into a new file."""
    length = min(count * size, 1 << 28) // size * size
    region = RealDisk().create(f"{path}/floor", length)
    body, view = b"x" * size, region.buffer
    start_time = time.perf_counter()
    for at in range(0, length, size):
        view[at : at + size] = body
    return (time.perf_counter() - start_time) / (length // size) * 1e6


if __name__ == "__main__":
    main()
