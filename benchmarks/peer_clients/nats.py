"""NATS JetStream by nats-py: a stream in files, every message acknowledged by the server and by the consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from benchmarks.peer_clients.load import BODY, Latencies, Load, Stopwatch, main, moments, stamped

FETCH = 256

Run = Callable[[Client, str, int, Stopwatch, Latencies], Awaitable[None]]


def load(run: Run) -> Load:
    """A load that runs on asyncio, with a stream of its own."""

    async def connected(address: str, count: int, watch: Stopwatch, latencies: Latencies) -> None:
        client = Client()
        await client.connect(f"nats://{address}")
        stream = client.jetstream()
        subject = f"s{time.time_ns()}"
        await stream.add_stream(name=subject, subjects=[subject], storage=StorageType.FILE)
        try:
            await run(client, subject, count, watch, latencies)
        finally:
            await stream.delete_stream(subject)
            await client.close()

    return lambda *args: asyncio.run(connected(*args))


async def sync(client: Client, subject: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    stream = client.jetstream()
    for _number in range(200):
        await stream.publish(subject, BODY)
    watch.began()
    for _number in range(count):
        await stream.publish(subject, BODY)
    watch.ended()


async def pipelined(in_flight: int, client: Client, subject: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    await _fill(client, subject, 2000, in_flight)
    watch.began()
    await _fill(client, subject, count, in_flight)
    watch.ended()


async def _fill(client: Client, subject: str, count: int, in_flight: int = 1024) -> None:
    """Have so many on their way, and look at each answer: half of the CPU of `publish_async`."""
    answers = client.new_inbox()
    answered, room, all_answered = 0, asyncio.Event(), asyncio.Event()

    async def stored(answer: Msg) -> None:
        nonlocal answered
        if b'"error"' in answer.data:
            raise RuntimeError(answer.data)
        answered += 1
        room.set()
        if answered == count:
            all_answered.set()

    subscription = await client.subscribe(answers, cb=stored)
    for number in range(count):
        while number - answered >= in_flight:
            room.clear()
            await room.wait()
        await client.publish(subject, BODY, reply=answers)
    await all_answered.wait()
    await subscription.unsubscribe()


async def each(client: Client, subject: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    await _fill(client, subject, count)
    settings = ConsumerConfig(max_ack_pending=10_000)
    subscription = await client.jetstream().pull_subscribe(subject, durable="each", config=settings)
    seen = 0
    watch.began()
    while seen < count:
        messages = await subscription.fetch(FETCH)
        for message in messages:
            await message.ack()
        seen += len(messages)
    watch.ended()


async def batches(client: Client, subject: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    await _fill(client, subject, count)
    settings = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10_000)
    subscription = await client.jetstream().pull_subscribe(subject, durable="batches", config=settings)
    seen = size = 0
    watch.began()
    while seen < count:
        messages = await subscription.fetch(FETCH)
        size += sum(len(message.data) for message in messages)
        await messages[-1].ack()
        seen += len(messages)
    watch.ended()


async def latency(client: Client, subject: str, count: int, watch: Stopwatch, latencies: Latencies) -> None:
    all_here = asyncio.Event()

    async def listener(message: Msg) -> None:
        latencies.arrived(message.data)
        if len(latencies.seconds) == count:
            all_here.set()

    stream = client.jetstream()
    await stream.subscribe(subject, cb=listener)
    watch.began()
    for due in moments(count):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await stream.publish(subject, stamped())
    await asyncio.wait_for(all_here.wait(), 10)
    watch.ended()


ALL: dict[str, Load] = {
    "sync": load(sync),
    "pipelined 256": load(partial(pipelined, 256)),
    "pipelined 1024": load(partial(pipelined, 1024)),
    "each": load(each),
    "batches": load(batches),
    "latency": load(latency),
}

if __name__ == "__main__":
    main(ALL)
