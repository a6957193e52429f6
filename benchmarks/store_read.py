"""The cost of reading: pulls, single records, keys, times, and a whole queue by numpy.

    python -m benchmarks.store_read [--count 200000] [--size 1024] [--directory DIR]

Pulls of 32 messages from one of eight queues, so each is a separate slice, and from a queue that has the log to itself,
where 32 messages are one slice; with the join that makes the answer's body. Then a pull whose tag matches nothing, a
record by its log offset, a message by its key, an offset by time, and the sum of a queue's sizes by numpy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import trio

from benchmarks.support.stores import directory, messages, opened
from rocketlet.store.message_store import MessageStore

TOPIC = "BenchmarkTest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--directory")
    options = parser.parse_args()
    trio.run(measure, options.count, options.size, options.directory)


async def measure(count: int, size: int, under: str | None) -> None:
    with directory(under) as path:
        async with opened(path) as store:
            for queues in (8, 1):
                for message in messages(count // 2, size, queues):
                    message.topic = TOPIC if queues == 8 else "Alone"
                    store.put(message)
                store.settle()
            for name, (times, function) in works(store, count).items():
                print(f"{name:<44} {best(times, function):8.2f} µs")
        async with opened(path) as store:  # nothing is known to be in memory now: the page cache is queried
            print(
                f"{'pull of 32 after a restart':<44} {best(500, lambda i: store.get(TOPIC, i % 8, i * 7, 32)):8.2f} µs"
            )


def works(store: MessageStore, count: int) -> dict[str, tuple[int, Callable[[int], object]]]:
    last = store.queue_end(TOPIC, 0) - 33
    alone = store.queue_end("Alone", 0) - 33
    queue = store.queue(TOPIC, 0)
    assert queue is not None
    places = [entry[0] for i in range(1000) if (entry := queue.entry(i * 7 % last)) is not None]
    middle = store.store_time_at(TOPIC, 0, last // 2)
    return {
        "pull of 32, eight queues": (2000, lambda i: store.get(TOPIC, i % 8, i * 7 % last, 32)),
        "the same with its body": (2000, lambda i: store.get(TOPIC, i % 8, i * 7 % last, 32).body()),
        "pull of 32, one queue": (2000, lambda i: store.get("Alone", 0, i * 7 % alone, 32)),
        "the same with its body, one slice": (2000, lambda i: store.get("Alone", 0, i * 7 % alone, 32).body()),
        "pull of which nothing passes, 800 entries": (
            500, lambda i: store.get(TOPIC, i % 8, i * 7 % last, 32, match=lambda code: code == 1),
        ),
        "pull at the end of a queue": (5000, lambda i: store.get(TOPIC, 0, store.queue_end(TOPIC, 0), 32)),
        "record by log offset": (5000, lambda i: store.record_at(places[i % len(places)])),
        "message by key": (2000, lambda i: store.find_by_key(TOPIC, f"order-{i * 11 % (count // 2)}", 32, 0, 1 << 62)),
        "offset by time": (500, lambda i: store.offset_at_time(TOPIC, 0, middle)),
        f"sizes of {queue.end:,} entries summed by numpy": (100, lambda i: int(queue.to_numpy()["size"].sum())),
    }  # fmt: skip


def best(times: int, function: Callable[[int], object]) -> float:
    """µs per call, the best of five rounds."""
    rounds = []
    for _ in range(5):
        start_time = time.perf_counter()
        for number in range(times):
            function(number)
        rounds.append((time.perf_counter() - start_time) / times * 1e6)
    return min(rounds)


if __name__ == "__main__":
    main()
