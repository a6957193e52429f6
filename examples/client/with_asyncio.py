"""Sending and consuming under asyncio: python examples/client/with_asyncio.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import asyncio

from rocketlet import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, ReceivedMessage


async def main() -> None:
    got: list[int] = []
    everything = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.01)  # as many of these run at once as the consumer has `threads`
        got.append(int(message.body))
        if len(got) == 10:
            everything.set()

    async with AsyncProducer("with-asyncio") as producer:
        await asyncio.gather(*(producer.send(Message("WithAsyncio", b"%d" % number)) for number in range(10)))
    async with AsyncPushConsumer(
        "with-asyncio", listener, topics={"WithAsyncio": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    ):
        await asyncio.wait_for(everything.wait(), 30)
    print(f"consumed {sorted(got)}")


if __name__ == "__main__":
    asyncio.run(main())
