"""Pulls in batches of 32 from one connection, as fast as the broker answers; compared with its send rate.

python -m benchmarks.pull [--count 100000] [--size 1024]
"""

from __future__ import annotations

import argparse
import struct
import time
from dataclasses import dataclass

from benchmarks.support.cpu import CpuMeter
from benchmarks.support.frames import pull_frame, send_frame
from benchmarks.support.pipeline import check_answer, connect, exchange, pipelined
from benchmarks.support.processes import Server, stack

BATCH = 32
IN_FLIGHT = 8  # pulls in flight at once


@dataclass(frozen=True, slots=True)
class Pulled:
    """The results of pulling."""

    messages: int
    seconds: float
    server_cpu: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_micros(self) -> float:
        """Microseconds of the broker's CPU a message."""
        return self.server_cpu / self.messages * 1e6


def pull_all(server: Server, topic: str, queue_id: int, count: int) -> Pulled:
    """Pull offsets 0 to `count`; the records in the answers are counted, and every one must be complete."""
    with connect(server.port) as connection:
        check_answer(exchange(connection, pull_frame("json", topic, queue_id, 0, BATCH)))
        frames = [pull_frame("json", topic, queue_id, at, BATCH) for at in range(0, count - BATCH + 1, BATCH)]
        meter, start_time = CpuMeter(server.pid).start(), time.perf_counter()
        messages, answered, sent, rest = 0, 0, 0, bytearray()
        while answered < len(frames):
            if sent < len(frames) and sent - answered <= IN_FLIGHT // 2:
                upto = min(len(frames), answered + IN_FLIGHT)
                connection.sendall(b"".join(frames[sent:upto]))
                sent = upto
            rest += connection.recv(1 << 20)
            at = 0
            while len(rest) - at >= 4 and len(rest) - at - 4 >= (size := int.from_bytes(rest[at : at + 4], "big")):
                messages += records(rest, at + 4, at + 4 + size)
                answered += 1
                at += 4 + size
            del rest[:at]
        return Pulled(messages, time.perf_counter() - start_time, meter.read())


def records(data: bytearray, begin: int, end: int) -> int:
    """How many records an answer holds."""
    at = begin + 4 + (int.from_bytes(data[begin : begin + 4], "big") & 0xFFFFFF)
    complete = 0
    while at < end:
        at += struct.unpack_from(">i", data, at)[0]
        complete += 1
    if at != end:
        raise ValueError("a pull was answered with half a record")
    return complete


def measure(count: int, size: int) -> tuple[float, Pulled]:
    """Our own send rate, and the pull rate of the same messages."""
    with stack() as (_, server):
        sent = pipelined(server.port, send_frame("json", "TopicTest", 2, b"x" * size), 64, count)
        return sent.rate, pull_all(server, "TopicTest", 2, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    options = parser.parse_args()
    send_rate, pulled = measure(options.count, options.size)
    print(f"send {send_rate:>10,.0f}/s")
    print(
        f"pull {pulled.rate:>10,.0f}/s {pulled.cpu_micros:6.2f} µs of CPU each, {pulled.rate / send_rate:.1f} x sending"
    )


if __name__ == "__main__":
    main()
