"""Consumes as fast as it can; flags and lines of RocketMQ's benchmark consumer.

    python -m benchmarks.consumer -n 127.0.0.1:9876 [-t BenchmarkTest] [-g group] [-r 0.0] [-f SQL92 -e FILE]

B2C is the time from a message's birth at the producer to its consumption, S2C that from its storing.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from pathlib import Path

from benchmarks.producer import is_true
from rocketlet import ConsumeFrom, ConsumeStatus, PushConsumer, ReceivedMessage, Sql

REPORT_SECONDS = 10.0


class Consumed:
    """Counters of a listener that runs in several threads; an occasional lost increment does not matter here."""

    def __init__(self) -> None:
        self.count = self.failed = 0
        self.born_ms = self.stored_ms = 0
        self.max_born = self.max_stored = 0

    def add(self, message: ReceivedMessage) -> None:
        now = time.time_ns() // 1_000_000
        born, stored = now - message.born_timestamp, now - message.store_timestamp
        self.count += 1
        self.born_ms += born
        self.stored_ms += stored
        self.max_born = max(self.max_born, born)
        self.max_stored = max(self.max_stored, stored)

    def line(self, before: tuple[int, int, int, int], seconds: float) -> str:
        """One line of RocketMQ's."""
        count, failed, born, stored = before
        consumed = self.count - count
        return (
            f"TPS: {consumed / seconds:.0f} | FAIL: {self.failed - failed} | AVG(B2C) RT(ms): "
            f"{(self.born_ms - born) / max(1, consumed):7.3f} | AVG(S2C) RT(ms): "
            f"{(self.stored_ms - stored) / max(1, consumed):7.3f} | MAX(B2C) RT(ms): {self.max_born} | "
            f"MAX(S2C) RT(ms): {self.max_stored}"
        )

    def snapshot(self) -> tuple[int, int, int, int]:
        return self.count, self.failed, self.born_ms, self.stored_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--namesrvAddr", default="127.0.0.1:9876", help="name servers")
    parser.add_argument("-t", "--topic", default="BenchmarkTest")
    parser.add_argument("-w", "--threadCount", type=int, default=20)
    parser.add_argument("-g", "--group", default="benchmark_consumer")
    parser.add_argument("-p", "--groupPrefixEnable", type=is_true, default=True, help="append a random suffix")
    parser.add_argument("-f", "--filterType", choices=("TAG", "SQL92"))
    parser.add_argument("-e", "--expression", help="file with the filter's expression")
    parser.add_argument("-r", "--failRate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--count", type=int, help="stop after so many, and print how many and in how many ms")
    options = parser.parse_args()
    group = f"{options.group}_{random.randrange(100)}" if options.groupPrefixEnable else options.group
    selection: str | Sql = "*"
    if options.filterType:
        text = Path(options.expression).read_text().strip()
        selection = Sql(text) if options.filterType == "SQL92" else text
    consumed = Consumed()

    def listener(message: ReceivedMessage) -> ConsumeStatus:
        if options.failRate and random.random() < options.failRate:
            consumed.failed += 1
            return ConsumeStatus.LATER
        consumed.add(message)
        return ConsumeStatus.SUCCESS

    consumer = PushConsumer(
        group,
        listener,
        namesrv=options.namesrvAddr,
        threads=options.threadCount,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        topics={options.topic: selection},
    )
    with consumer:
        if options.count:
            _count(consumed, options.count)
        else:
            _report(consumed, options.seconds)


def _count(consumed: Consumed, target: int) -> None:
    """Count since the first message."""
    pause, start_time = threading.Event(), 0.0
    while consumed.count < target:
        pause.wait(0.001 if start_time == 0 else 0.02)
        if start_time == 0 and consumed.count:
            start_time = time.perf_counter()
    print(f"{consumed.count} {(time.perf_counter() - start_time) * 1000:.0f}", flush=True)


def _report(consumed: Consumed, seconds: float | None) -> None:
    start_time = at = time.perf_counter()
    end = start_time + seconds if seconds is not None else float("inf")
    before, sleep = consumed.snapshot(), threading.Event()
    try:
        while (wait := min(REPORT_SECONDS, end - time.perf_counter())) > 0:
            sleep.wait(wait)
            now = time.perf_counter()
            print(f"Current Time: {time.strftime('%H:%M:%S')} | {consumed.line(before, now - at)}", flush=True)
            before, at = consumed.snapshot(), now
    except KeyboardInterrupt:
        pass
    print(
        f"[Complete] Total: {consumed.count} | {consumed.line((0, 0, 0, 0), time.perf_counter() - start_time)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
