"""A million messages waiting in one broker, delayed or in flight: its memory; and the lateness of deliveries under
load.

    python -m benchmarks.waiting [--count 1000000] [--seconds 15]

Lateness is from a message's delivery time to its storing in its own topic, while other producers send at half of the
broker's rate. Memory is the process's own, without the pages of the log.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from benchmarks.pop import pop_all
from benchmarks.support.cpu import CpuMeter, resident_bytes
from benchmarks.support.frames import batch_frame, pull_frame, send_frame
from benchmarks.support.pipeline import RECEIVE, check_answer, connect, exchange, pipelined
from benchmarks.support.processes import ROOT, Server, stack
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import decode

TOPIC = "TopicTest"
QUEUE = 2
LATE_TOPIC = "Late"
IN_FLIGHT = 64
BATCH = 100
LOADERS = 2
MAX_OF_LOAD = 512  # in flight from one producer
PROPERTIES = "UNIQ_KEY\x017F000001ABCD18B4AAC2%012X\2WAIT\1true"


def send_all(port: int, frames: Iterable[bytes]) -> None:
    """Send frames, half of IN_FLIGHT at a time; the first answer is checked."""
    with connect(port) as connection:
        remaining = iter(frames)
        check_answer(exchange(connection, next(remaining)))
        under_way, rest = 0, b""
        while burst := list(islice(remaining, IN_FLIGHT // 2)):
            connection.sendall(b"".join(burst))
            under_way += len(burst)
            while under_way > IN_FLIGHT // 2:
                answered, rest = _answers(rest + connection.recv(RECEIVE))
                under_way -= answered
        while under_way:
            answered, rest = _answers(rest + connection.recv(RECEIVE))
            under_way -= answered


def _answers(data: bytes) -> tuple[int, bytes]:
    count = at = 0
    while len(data) - at >= 4 and len(data) - at - 4 >= (size := int.from_bytes(data[at : at + 4], "big")):
        at += 4 + size
        count += 1
    return count, data[at:]


def delayed_frames(count: int, topic: str, first_ms: int, spread_ms: int) -> Iterator[bytes]:
    """Sends of messages whose delivery times are spread evenly."""
    for number in range(count):
        due = first_ms + number * spread_ms // count
        properties = PROPERTIES % number + f"\2TIMER_DELIVER_MS\1{due}"
        yield send_frame("json", topic, 0, b"x" * 64, properties)


def pending_mb(count: int) -> float:
    """A broker's memory for that many messages due within hours."""
    with stack() as (_, server):
        before = _resident_after(server, lambda: pipelined(server.port, send_frame("json", TOPIC, 0, b"x"), 64, 2000))
        send_all(server.port, delayed_frames(64, TOPIC, _now() + 3_600_000, 1000))
        send_all(server.port, delayed_frames(count, TOPIC, _now() + 3_600_000, 10_000_000))
        time.sleep(3)
        return (resident_bytes(server.pid) - before) / 1e6


def in_flight_mb(count: int) -> float:
    """A broker's memory for that many popped and unacknowledged messages."""
    with stack() as (_, server):
        frame = batch_frame("json", TOPIC, QUEUE, [b"x" * 64] * BATCH)
        send_all(server.port, (frame for _ in range(count // BATCH + 64)))
        before = _resident_after(server, lambda: pop_all(server, 2000, acknowledge=True))
        pop_all(server, count, acknowledge=False)
        time.sleep(3)
        return (resident_bytes(server.pid) - before) / 1e6


def _resident_after(server: Server, warm_up: object) -> int:
    assert callable(warm_up)
    warm_up()
    time.sleep(1)
    return resident_bytes(server.pid)


@dataclass(frozen=True, slots=True)
class Late:
    """Milliseconds, the load in sends a second, and how busy the broker was."""

    median: float
    p99: float
    load: float
    busy: float


def lateness(seconds: float, count: int = 2000) -> Late:
    """How late delayed messages are stored while others send at half of the broker's rate."""
    with stack() as (_, server):
        cpu_micros = pipelined(server.port, send_frame("json", TOPIC, QUEUE, b"x" * 1024), 64, 30_000).cpu_micros
        load_rate = 0.5e6 / cpu_micros  # of what its core could serve without competition
        first = _now() + 4000
        send_all(server.port, delayed_frames(count, LATE_TOPIC, first, int(seconds * 1000)))
        with _load(server.port, load_rate, seconds + 4):
            time.sleep(max(first - _now(), 0) / 1000)
            meter, start_time = CpuMeter(server.pid).start(), time.perf_counter()
            time.sleep(seconds)
            busy = meter.read() / (time.perf_counter() - start_time)
        time.sleep(1)
        latenesses = sorted(_latenesses(server.port, count))
        if len(latenesses) < count:
            raise RuntimeError(f"{len(latenesses)} of {count} delayed messages came")
        return Late(statistics.median(latenesses), latenesses[len(latenesses) * 99 // 100], load_rate, busy)


@contextmanager
def _load(port: int, rate: float, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.waiting", "--load", str(port), str(rate / LOADERS), str(seconds)]
    loaders = [subprocess.Popen(command, cwd=ROOT) for _ in range(LOADERS)]
    try:
        yield
        for loader in loaders:
            if loader.wait(60):
                raise RuntimeError("a producer of the load failed")
    finally:
        for loader in loaders:
            loader.kill()
            loader.wait()


def _keep_sending(port: int, rate: float, seconds: float) -> None:
    """Send at a rate, as far as the broker keeps up."""
    frame = send_frame("json", TOPIC, QUEUE, b"x" * 1024)
    with connect(port) as connection:
        start_time, sent, answered, rest = time.perf_counter(), 0, 0, b""
        while (now := time.perf_counter() - start_time) < seconds:
            due = min(int(now * rate), answered + MAX_OF_LOAD) - sent
            if due > 0:
                connection.sendall(frame * due)
                sent += due
            if sent > answered:
                count, rest = _answers(rest + connection.recv(RECEIVE))
                answered += count
            else:
                time.sleep(0.001)


def _latenesses(port: int, count: int) -> Iterator[int]:
    with connect(port) as connection:
        offset = 0
        while offset < count:
            answer = exchange(connection, pull_frame("json", LATE_TOPIC, 0, offset, 32))
            at = 4 + (int.from_bytes(answer[:4], "big") & 0xFFFFFF)
            if at == len(answer):
                return
            while at < len(answer):
                size = int.from_bytes(answer[at : at + 4], "big")
                record = decode(answer[at : at + size])
                yield record.store_timestamp - int(decode_bytes(record.properties)["TIMER_DELIVER_MS"])
                at += size
                offset += 1


def _now() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--load", nargs=3, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        port, rate, seconds = options.load
        _keep_sending(int(port), rate, seconds)
        return
    late = lateness(options.seconds)
    print(
        f"delayed messages are stored {late.median:.0f} ms late, 99 % within {late.p99:.0f},"
        f" beside {late.load:,.0f} sends/s, the broker {late.busy:.0%} busy"
    )
    print(f"{options.count:,} in flight: {in_flight_mb(options.count):.0f} MB")
    print(f"{options.count:,} delayed:   {pending_mb(options.count):.0f} MB")


if __name__ == "__main__":
    main()
