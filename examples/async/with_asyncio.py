"""Produce and consume under asyncio: python examples/async/with_asyncio.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import asyncio

from client import AsyncLitePullConsumer, AsyncProducer, ConsumeFrom, Message

COUNT = 100


async def main() -> None:
    async with AsyncProducer("asyncio-producers") as producer:
        # A hundred sends on their way at once, on one connection.
        await asyncio.gather(*[producer.send(Message("Asyncio", b"%d" % number)) for number in range(COUNT)])
        print(f"sent      {COUNT} messages")
    consumer = AsyncLitePullConsumer(
        "asyncio-consumers", topics={"Asyncio": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    )
    total = count = 0
    async with consumer:
        async for message in consumer:
            count += 1
            total += int(message.body)
            if count == COUNT:
                break
    print(f"consumed  {count} messages, their sum is {total}")


if __name__ == "__main__":
    asyncio.run(main())
