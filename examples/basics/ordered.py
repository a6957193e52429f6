"""Messages that must stay in order: python examples/basics/ordered.py

What has the same sharding key goes to the same queue, and an orderly consumer works on one message of a queue at a
time.
The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

ORDERS = ("order-1", "order-2", "order-3")
STEPS = ("created", "paid", "packed", "shipped")


def main() -> None:
    with Producer("order-producers") as producer:
        for step in STEPS:
            for order in ORDERS:
                producer.send(Message("OrderSteps", f"{order} {step}".encode(), sharding_key=order))
    seen: dict[str, list[str]] = defaultdict(list)
    all_seen = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        order, step = message.body.decode().split()
        seen[order].append(step)
        if sum(map(len, seen.values())) == len(ORDERS) * len(STEPS):
            all_seen.set()

    with PushConsumer(
        "order-consumers",
        listener,
        topics={"OrderSteps": "*"},
        orderly=True,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        all_seen.wait(30)
    for order in ORDERS:
        print(f"consumed  {order}: {', '.join(seen[order])}")


if __name__ == "__main__":
    main()
