"""Consumes five messages: python examples/quickstart/consumer.py

A second run finds nothing: the group has consumed them, and the broker remembers that. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import ConsumeFrom, LitePullConsumer


def main() -> None:
    consumer = LitePullConsumer(
        "quickstart-consumers", topics={"Quickstart": "greeting"}, consume_from=ConsumeFrom.FIRST_OFFSET
    )
    with consumer:
        for count, message in enumerate(consumer, 1):
            print(f"consumed  {message.body.decode()}  from queue {message.queue.queue_id}")
            if count == 5:
                break


if __name__ == "__main__":
    main()
