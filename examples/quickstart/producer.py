"""Sends five messages: python examples/quickstart/producer.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import Message, Producer


def main() -> None:
    with Producer("quickstart-producers") as producer:
        for number in range(1, 6):
            message = Message("Quickstart", f"Hello {number}".encode(), tags="greeting", keys=[f"{number}"])
            result = producer.send(message)
            print(f"sent      Hello {number}  to queue {result.queue.queue_id}, {result.status.name}")


if __name__ == "__main__":
    main()
