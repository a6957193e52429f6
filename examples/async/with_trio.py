"""Produce and consume under trio, where the client runs in your own loop: python examples/async/with_trio.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import trio

from client import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, ReceivedMessage

COUNT = 3


async def main() -> None:
    everything = trio.Event()
    seen: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        print(f"consumed  {seen[-1]}")
        if len(seen) == COUNT:
            everything.set()

    async with (
        AsyncPushConsumer("trio-consumers", listener, topics={"Trio": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET),
        AsyncProducer("trio-producers") as producer,
    ):
        for number in range(COUNT):
            await producer.send(Message("Trio", b"number %d" % number))
        await everything.wait()


if __name__ == "__main__":
    trio.run(main)
