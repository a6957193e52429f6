"""Sending and consuming under trio: python examples/client/with_trio.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import trio

from rocketlet import AsyncLitePullConsumer, AsyncProducer, ConsumeFrom, Message


async def produce(count: int) -> None:
    async with AsyncProducer("with-trio") as producer, trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(producer.send, Message("WithTrio", b"%d" % number))


async def main() -> None:
    await produce(10)
    got: list[int] = []
    async with AsyncLitePullConsumer(
        "with-trio", topics={"WithTrio": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        with trio.move_on_after(30):
            async for message in consumer:
                got.append(int(message.body))
                if len(got) == 10:
                    break
    print(f"consumed {sorted(got)}")


if __name__ == "__main__":
    trio.run(main)
