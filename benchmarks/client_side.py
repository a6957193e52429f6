"""Our client beside the raw sender on one broker: pipelined, one plain thread, and consuming.

    python -m benchmarks.client_side [--count 100000]

The raw sender's requests are encoded beforehand and its answers only counted; a client creates ids, properties and
routes, and passes each answer to its waiter.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import pipelined
from benchmarks.support.processes import stack
from rocketlet import ConsumeFrom, Message, PendingSend, Producer, PushConsumer, ReceivedMessage

IN_FLIGHT = 256
SIZE = 1024
QUEUES = 4
TURNS = 3


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages a second, and microseconds of this process's CPU for each."""

    rate: float
    cpu_micros: float


@dataclass(frozen=True, slots=True)
class ClientSide:
    """Rates of the raw sender (64 and 1 in flight) and of our client."""

    raw: float
    raw_one: float
    pipelined: Rate
    one_thread: Rate
    consumed: Rate


def timed(count: int, work: Callable[[], object]) -> Rate:
    """Rate and CPU of a function that handles that many messages."""
    start_time, cpu = time.perf_counter(), time.process_time()
    work()
    return Rate(count / (time.perf_counter() - start_time), (time.process_time() - cpu) / count * 1e6)


def measure(count: int) -> ClientSide:
    """All on one stack; raw sender and client in turns; medians are reported."""
    body = b"x" * SIZE
    with stack() as (names, server):
        namesrv = f"127.0.0.1:{names.port}"
        frames = [send_frame("json", "TopicTest", queue, body) for queue in range(QUEUES)]
        pipelined(server.port, frames[0], 64, 10_000)
        with Producer("client-side", namesrv=namesrv, compress_over=1 << 30) as producer:

            def keep_sending(messages: int) -> None:
                under_way: deque[PendingSend] = deque()
                for _ in range(messages):
                    if len(under_way) == IN_FLIGHT:
                        under_way.popleft().result()
                    under_way.append(producer.send_soon(Message("TopicTest", body)))
                for pending in under_way:
                    pending.result()

            def send_one_by_one(messages: int) -> None:
                for _ in range(messages):
                    producer.send(Message("TopicTest", body))

            keep_sending(5_000)
            raw, pipelined_rates, raw_one, one_thread_rates = [], [], [], []
            few = count // 20
            for _ in range(TURNS):
                raw.append(pipelined(server.port, frames[0], 64, count).rate)
                pipelined_rates.append(timed(count, lambda: keep_sending(count)))
                raw_one.append(pipelined(server.port, frames[0], 1, few).rate)
                one_thread_rates.append(timed(few, lambda: send_one_by_one(few)))
        consumed = []
        for number in range(TURNS):
            topic = f"Drain-{number}"
            for queue in range(QUEUES):
                pipelined(server.port, send_frame("json", topic, queue, body), 64, count // QUEUES)
            raw.append(pipelined(server.port, frames[0], 64, count).rate)
            consumed.append(_consume(namesrv, topic, count // QUEUES * QUEUES))
        return ClientSide(
            statistics.median(raw),
            statistics.median(raw_one),
            _median(pipelined_rates),
            _median(one_thread_rates),
            _median(consumed),
        )


def _median(rates: list[Rate]) -> Rate:
    return Rate(statistics.median(rate.rate for rate in rates), statistics.median(rate.cpu_micros for rate in rates))


def _consume(namesrv: str, topic: str, count: int) -> Rate:
    """Time from the first message to the last of a filled topic."""
    first, last = threading.Event(), threading.Event()
    count_seen = 0

    def listener(message: ReceivedMessage) -> None:
        nonlocal count_seen
        count_seen += 1
        if count_seen == 1:
            first.set()
        if count_seen >= count:
            last.set()

    # One thread counts, so that no increment is lost.
    with PushConsumer(
        f"client-side-{topic}", listener, namesrv=namesrv, topics={topic: "*"}, threads=1,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):  # fmt: skip
        if not first.wait(30):
            raise RuntimeError("nothing arrives at the consumer")
        return timed(count, lambda: last.wait(120))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    side = measure(parser.parse_args().count)
    print(f"raw sender, 64 in flight {side.raw:>10,.0f}/s       1 in flight {side.raw_one:>8,.0f}/s")
    for name, rate, raw_rate in [
        ("pipelined", side.pipelined, side.raw),
        ("one thread", side.one_thread, side.raw_one),
        ("consuming", side.consumed, side.raw),
    ]:
        print(
            f"{name:24} {rate.rate:>10,.0f}/s {rate.cpu_micros:6.1f} µs each, {rate.rate / raw_rate:.2f} of the raw one"
        )


if __name__ == "__main__":
    main()
