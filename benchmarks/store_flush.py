"""Group commit compared with the disk: durable sends per second, and the disk's own flush rate.

    python -m benchmarks.store_flush [--seconds 3] [--size 1024] [--directory DIR]

First the disk: write 1 KiB and fdatasync, again and again. Then the store with SYNC_FLUSH and 1 to 256 senders that
each wait for their message to be durable before they send the next one. Batching should be nearly free: messages per
second grow with the senders while flushes per second stay near the disk's. Last, how long the loop stalls while 64 MiB
of log are flushed in the background.
"""

from __future__ import annotations

import argparse
import os
import time

import trio

from benchmarks.support.stores import directory, messages, opened
from rocketlet.store.config import FlushDiskType


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--directory")
    options = parser.parse_args()
    with directory(options.directory) as path:
        raw = raw_rate(f"{path}/raw", options.size, options.seconds)
    print(f"disk: {raw:,.0f} times a second {options.size} bytes and fdatasync")
    for senders in (1, 4, 16, 64, 256):
        sent, rounds, slowest = trio.run(group_commit, senders, options.size, options.seconds, options.directory)
        print(
            f"{senders:>4} senders: {sent:,.0f} messages a second by {rounds:,.0f} flushes,"
            f" {sent / raw:.1f} times the disk's rate; slowest send {slowest * 1000:.1f} ms"
        )
    stall, took = trio.run(stall_of_a_large_flush, options.directory)
    print(f"while 64 MiB were flushed in {took * 1000:.0f} ms the loop stood still for {stall * 1000:.1f} ms at most")


def raw_rate(path: str, size: int, seconds: float) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 1 << 28)
    data, at = b"x" * size, 0
    start_time = time.perf_counter()
    while (elapsed := time.perf_counter() - start_time) < seconds:
        os.pwrite(descriptor, data, at % (1 << 28))
        os.fdatasync(descriptor)
        at += size
    os.close(descriptor)
    return at / size / elapsed


async def group_commit(senders: int, size: int, seconds: float, under: str | None) -> tuple[float, float, float]:
    """(messages a second, flushes a second, the slowest send in seconds)."""
    puts = messages(1000, size)
    sent, slowest = 0, 0.0
    with directory(under) as path:
        async with opened(path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store, trio.open_nursery() as nursery:
            await nursery.start(store.run)
            end = trio.current_time() + seconds

            async def send(number: int) -> None:
                nonlocal sent, slowest
                while (start_time := trio.current_time()) < end:
                    appended = store.put(puts[(number + sent) % 1000])
                    store.settle()
                    await store.flushed_to(appended.end, 5000)
                    sent += 1
                    slowest = max(slowest, trio.current_time() - start_time)

            async with trio.open_nursery() as working:
                for number in range(senders):
                    working.start_soon(send, number)
            rounds = store.statistics().flush_rounds
            nursery.cancel_scope.cancel()
    return sent / seconds, rounds / seconds, slowest


async def stall_of_a_large_flush(under: str | None) -> tuple[float, float]:
    """(longest time between two looks at the clock, time of the flush) while 64 MiB are flushed."""
    with directory(under) as path:
        async with opened(path) as store, trio.open_nursery() as nursery:
            for message in messages(64 << 10, 1000):
                store.put(message)
            store.settle()
            await nursery.start(store.run)
            longest, last = 0.0, time.perf_counter()
            done = trio.Event()

            async def flush() -> None:
                await store.flushed_to(store.log.end)
                done.set()

            nursery.start_soon(flush)
            start_time = last
            while not done.is_set():
                await trio.sleep(0)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
            nursery.cancel_scope.cancel()
    return longest, last - start_time


if __name__ == "__main__":
    main()
