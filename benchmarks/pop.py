"""Pops beside pulls of the same messages from one broker, in turns: batches of 32 from one connection.

    python -m benchmarks.pop [--count 100000] [--rounds 5] [--java]

The ratios compare messages per second of the broker's CPU with pulls: for pops alone, and for acknowledged pops, with
one batch ack (200151) per batch, as sent by our own client. With --java the same pops, from any of eight queues, from
our broker and RocketMQ 5.3.3's in turns; its compiler warms up in the first turn.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import statistics
import time
from dataclasses import dataclass

from benchmarks.pull import BATCH, IN_FLIGHT, Pulled, pull_all, records
from benchmarks.support.cpu import CpuMeter
from benchmarks.support.frames import batch_ack_frame, pop_frame, send_frame
from benchmarks.support.pipeline import check_answer, connect, exchange, pipelined
from benchmarks.support.processes import Server, java5_stack, stack

TOPIC = "TopicTest"
QUEUE = 2
ANY = -1
_OPAQUE_OF_POPS, _OPAQUE_OF_ACKS = 1, 2
_groups = (f"BenchmarkPops{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of the broker's CPU for a message, over all turns: one alone takes a few ticks of the kernel."""

    pull: float
    pop: float
    acknowledged: float


def pop_all(server: Server, count: int, *, acknowledge: bool, queue_id: int = QUEUE) -> Pulled:
    """Pop `count` messages or a few more, as a new group, and acknowledge them. REQUIRES that there are more, because a
    pop that finds none waits."""
    group = next(_groups)
    pop = pop_frame("json", group, TOPIC, queue_id, BATCH, _OPAQUE_OF_POPS)
    with connect(server.port) as connection:
        check_answer(exchange(connection, pop))  # creates the group
        meter, start_time = CpuMeter(server.pid).start(), time.perf_counter()
        messages, sent, popped, acks, acked, rest, acks_to_send = 0, 0, 0, 0, 0, bytearray(), list[bytes]()
        while messages < count or acked < acks:
            count_to_send = IN_FLIGHT - (sent - popped) if messages < count and sent - popped <= IN_FLIGHT // 2 else 0
            if count_to_send or (acks_to_send and messages >= count):
                connection.sendall(b"".join(acks_to_send) + pop * count_to_send)
                sent += count_to_send
                acks_to_send.clear()
            rest += connection.recv(1 << 20)
            at = 0
            while len(rest) - at >= 4 and len(rest) - at - 4 >= (size := int.from_bytes(rest[at : at + 4], "big")):
                begin, end = at + 4, at + 4 + size
                header = json.loads(rest[begin + 4 : begin + 4 + (int.from_bytes(rest[begin : begin + 4], "big"))])
                if header["code"]:
                    raise RuntimeError(f"answered with {header}")
                if header["opaque"] == _OPAQUE_OF_POPS:
                    popped += 1
                    messages += records(rest, begin, end)
                    if acknowledge:
                        acks += 1
                        acks_to_send.append(_ack_of(group, header["extFields"]))
                else:
                    acked += 1
                at = end
            del rest[:at]
        return Pulled(messages, time.perf_counter() - start_time, meter.read())


def _ack_of(group: str, fields: dict[str, str]) -> bytes:
    """The batch ack of all messages of one answer."""
    acks = []
    for part in fields["msgOffsetInfo"].split(";"):
        retry, queue_id, list_of_offsets = part.split(" ")
        offsets = [int(offset) for offset in list_of_offsets.split(",")]
        bits = sum(1 << (offset - offsets[0]) for offset in offsets)
        acks.append({
            "c": group, "t": TOPIC, "r": retry, "so": offsets[0], "q": int(queue_id), "rq": int(fields["reviveQid"]),
            "pt": int(fields["popTime"]), "it": int(fields["invisibleTime"]),
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
        })  # fmt: skip
    return batch_ack_frame("json", acks, _OPAQUE_OF_ACKS)


def measure(count: int, rounds: int, size: int = 1024) -> Cost:
    """Pulls, pops, and pops with their acks in turns."""
    pulls, pops, acknowledged = [], [], []
    with stack() as (_, server):
        pipelined(server.port, send_frame("json", TOPIC, QUEUE, b"x" * size), 64, count + 20 * BATCH)
        pop_all(server, count // 5, acknowledge=True)
        for _ in range(rounds):
            pulls.append(pull_all(server, TOPIC, QUEUE, count).cpu_micros)
            pops.append(pop_all(server, count, acknowledge=False).cpu_micros)
            acknowledged.append(pop_all(server, count, acknowledge=True).cpu_micros)
    return Cost(statistics.mean(pulls), statistics.mean(pops), statistics.mean(acknowledged))


def beside_java(count: int, rounds: int, size: int = 1024) -> dict[str, list[float]]:
    """CPU of a message popped, and of one popped and acknowledged, of both brokers in turns."""
    costs: dict[str, list[float]] = {}
    with java5_stack() as java, stack() as (_, ours):
        for server in (java, ours):
            for queue_id in range(8):
                frame = send_frame("json", TOPIC, queue_id, b"x" * size)
                pipelined(server.port, frame, 64, count // 8 + 20 * BATCH)
        for turn in range(rounds + 1):
            for name, server in (("Java 5.3.3", java), ("ours", ours)):
                for operation, acknowledge in (("pop", False), ("pop and ack", True)):
                    cpu = pop_all(server, count, acknowledge=acknowledge, queue_id=ANY).cpu_micros
                    if turn:
                        costs.setdefault(f"{name}, {operation}", []).append(cpu)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--java", action="store_true", help="beside RocketMQ 5.3.3's broker")
    options = parser.parse_args()
    if options.java:
        for name, costs in beside_java(options.count, options.rounds).items():
            print(f"{name:24} {statistics.mean(costs):6.2f} µs of the broker's CPU each")
        return
    cost = measure(options.count, options.rounds)
    print(f"pull            {cost.pull:6.2f} µs of the broker's CPU each")
    for name, micros in (("pop", cost.pop), ("pop and ack", cost.acknowledged)):
        print(f"{name:15} {micros:6.2f} µs, {cost.pull / micros:.2f} of pulls")


if __name__ == "__main__":
    main()
