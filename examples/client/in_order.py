"""Each order's events stay in order, consumed by two consumers: python examples/client/in_order.py

All events of an order have its number as their sharding key, so they go to one queue; an orderly consumer holds the
broker's lock on a queue and consumes it one by one. The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from rocketlet import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

ORDERS = 5
EVENTS = ["created", "paid", "packed", "shipped"]


def main() -> None:
    seen: dict[str, list[str]] = defaultdict(list)
    everything = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        order, event = message.body.decode().split()
        if event not in seen[order]:  # a queue that moves may repeat its last messages
            seen[order].append(event)
        if sum(map(len, seen.values())) == ORDERS * len(EVENTS):
            everything.set()

    with Producer("in-order") as producer:
        for event in EVENTS:
            for order in range(ORDERS):
                producer.send(Message("InOrder", f"order-{order} {event}".encode(), sharding_key=f"order-{order}"))

    def consumer() -> PushConsumer:
        return PushConsumer(
            "in-order", listener, topics={"InOrder": "*"}, orderly=True, consume_from=ConsumeFrom.FIRST_OFFSET
        )

    with consumer(), consumer():
        everything.wait(60)
    for order, events in sorted(seen.items()):
        print(f"{order}: {', '.join(events)}")


if __name__ == "__main__":
    main()
