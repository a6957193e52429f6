"""Our client: a producer in one thread, listeners in one thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial

from benchmarks.peer_clients.load import BATCH, BODY, Latencies, Load, Stopwatch, main, moments, stamped
from rocketlet import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    PendingSend,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

TOPIC = "TopicTest"


def sync(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    with Producer("peers", namesrv=address) as producer:
        for _number in range(200):
            producer.send(Message(TOPIC, BODY))
        watch.began()
        for _number in range(count):
            producer.send(Message(TOPIC, BODY))
        watch.ended()


def pipelined(in_flight: int, address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    with Producer("peers", namesrv=address, max_in_flight=in_flight) as producer:
        _fill(producer, TOPIC, 2000)
        watch.began()
        _fill(producer, TOPIC, count)
        watch.ended()


def _fill(producer: Producer, topic: str, count: int) -> None:
    """Keep `max_in_flight` sends in flight, and check each result."""
    under_way: deque[PendingSend] = deque()
    for _ in range(count):
        under_way.append(producer.send_soon(Message(topic, BODY)))
        while under_way and under_way[0].done:
            under_way.popleft().result()
    for pending in under_way:
        pending.result()


def atomic(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    with Producer("peers", namesrv=address) as producer:
        for _number in range(20):
            producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])
        watch.began()
        for _number in range(count // BATCH):
            producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])
        watch.ended()


def _full_topic(address: str, count: int) -> str:
    """A new topic with that many messages."""
    topic = f"Full-{time.time_ns()}"
    with Producer("peers", namesrv=address) as producer:
        _fill(producer, topic, count)
    return topic


def each(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    topic = _full_topic(address, count)
    seen, all_seen = 0, threading.Event()

    def listener(message: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            watch.began()
        if seen == count:
            watch.ended()
            all_seen.set()

    # One thread counts, so that no increment is lost.
    with PushConsumer(
        f"peers-{topic}", listener, topics={topic: "*"}, namesrv=address, threads=1,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):  # fmt: skip
        all_seen.wait(120)


def batches(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    topic = _full_topic(address, count)
    seen = size = 0
    with LitePullConsumer(
        f"peers-{topic}", topics={topic: "*"}, namesrv=address, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        for batch in consumer.batches():
            if not seen:
                watch.began()
            seen += len(batch)
            size += sum(map(len, batch.bodies))
            if seen >= count:
                break
        watch.ended()


def latency(address: str, count: int, watch: Stopwatch, latencies: Latencies) -> None:
    all_here = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        latencies.arrived(message.body)
        if len(latencies.seconds) == count:
            all_here.set()

    with (
        Producer("peers", namesrv=address) as producer,
        PushConsumer("peers-latency", listener, topics={"Latency": "*"}, namesrv=address),
    ):
        producer.create_topic("Latency", 4)
        time.sleep(1.0)
        watch.began()
        for due in moments(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            producer.send(Message("Latency", stamped()))
        all_here.wait(10)
        watch.ended()


ALL: dict[str, Load] = {
    "sync": sync,
    "pipelined 256": partial(pipelined, 256),
    "pipelined 1024": partial(pipelined, 1024),
    "atomic 64": atomic,
    "each": each,
    "batches": batches,
    "latency": latency,
}

if __name__ == "__main__":
    main(ALL)
