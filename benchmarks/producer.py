"""Sends as fast as it can through our client; flags and lines of RocketMQ's benchmark producer.

    python -m benchmarks.producer -n 127.0.0.1:9876 [-t BenchmarkTest] [-w 64] [-s 128] [-k true] [-y true]

`-y true` sends asynchronously: each thread keeps `--in-flight` sends in flight. Runs until Ctrl-C without --seconds.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import deque

from benchmarks.support.counters import Counters, Load
from rocketlet import Message, Producer
from rocketlet.client.errors import ClientError, Refused


def flags(about: str, *, threads: int = 64, size: int = 128) -> argparse.ArgumentParser:
    """The flags that all sending programs share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--namesrvAddr", default="127.0.0.1:9876", help="name servers")
    parser.add_argument("-t", "--topic", default="BenchmarkTest")
    parser.add_argument("-w", "--threadCount", type=int, default=threads)
    parser.add_argument("-s", "--messageSize", type=int, default=size)
    parser.add_argument("-k", "--keyEnable", type=is_true, default=False, help="give each message a key")
    parser.add_argument("-p", "--propertySize", type=int, default=0, help="bytes of properties")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    return parser


def is_true(text: str) -> bool:
    """Java's idea of a boolean flag."""
    return text.lower() == "true"


def message_of(options: argparse.Namespace, number: int) -> Message:
    """One message as given by the flags."""
    properties = {"filler": "x" * options.propertySize} if options.propertySize else {}
    keys = [f"{number}"] if options.keyEnable else []
    return Message(options.topic, b"x" * options.messageSize, keys=keys, properties=properties)


def send_synchronously(
    producer: Producer, options: argparse.Namespace, counters: Counters, stop: threading.Event
) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        start_time = time.perf_counter()
        try:
            producer.send(message_of(options, number))
        except Refused:
            counters.refused += 1
        except ClientError:
            counters.failed += 1
        else:
            counters.add(time.perf_counter() - start_time)


def send_pipelined(producer: Producer, options: argparse.Namespace, counters: Counters, stop: threading.Event) -> None:
    """Keep `--in-flight` sends in flight and wait for the oldest."""
    under_way: deque[tuple[float, object]] = deque()
    number = 0
    while not stop.is_set() or under_way:
        if not stop.is_set() and len(under_way) < options.in_flight:
            number += 1
            under_way.append((time.perf_counter(), producer.send_soon(message_of(options, number))))
            continue
        start_time, pending = under_way.popleft()
        try:
            pending.result()  # type: ignore[attr-defined]
        except Refused:
            counters.refused += 1
        except ClientError:
            counters.failed += 1
        else:
            counters.add(time.perf_counter() - start_time)


def main() -> None:
    parser = flags(__doc__ or "")
    parser.add_argument("-y", "--asyncEnable", type=is_true, default=False, help="send without waiting for each")
    parser.add_argument("--in-flight", type=int, default=256, help="of each thread with -y true")
    options = parser.parse_args()
    work = send_pipelined if options.asyncEnable else send_synchronously
    with Producer("benchmark_producer", namesrv=options.namesrvAddr, compress_over=1 << 30) as producer:
        Load().run(lambda counters, stop: work(producer, options, counters, stop), options.threadCount, options.seconds)


if __name__ == "__main__":
    main()
