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

AT_ONCE = 256

Run = Callable[[Client, str, int, Stopwatch, Latencies], Awaitable[None]]


def load(run: Run) -> Load:
    """A load that runs on asyncio, with its own stream."""

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
    """Keep that many in flight, and check each answer: half of the CPU of `publish_async`."""
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


async def consumed(at_once: int, client: Client, subject: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    """By a push subscription; each message is acknowledged, or one of so many for all before it."""
    await _fill(client, subject, count)
    policy = AckPolicy.EXPLICIT if at_once == 1 else AckPolicy.ALL
    settings = ConsumerConfig(ack_policy=policy, max_ack_pending=10_000)
    seen, all_seen = 0, asyncio.Event()

    async def listener(message: Msg) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            watch.began()
        if seen % at_once == 0 or seen == count:
            await message.ack()
        if seen == count:
            watch.ended()
            all_seen.set()

    await client.jetstream().subscribe(subject, cb=listener, config=settings, manual_ack=True)
    await asyncio.wait_for(all_seen.wait(), 60)


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
    "each": load(partial(consumed, 1)),
    "batches": load(partial(consumed, AT_ONCE)),
    "latency": load(latency),
}

if __name__ == "__main__":
    main(ALL)
