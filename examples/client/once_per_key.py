"""A listener that runs once per business key, even for duplicates: python examples/client/once_per_key.py

The same payment is sent twice, as by a producer that did not get the answer to its first send. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from rocketlet import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SqliteKeys, once


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, SqliteKeys(str(Path(folder) / "done.db")) as done:
        charged: list[str] = []
        last = threading.Event()

        @once(done)
        def charge(message: ReceivedMessage) -> None:
            charged.append(message.keys[0])

        def listener(message: ReceivedMessage) -> None:
            charge(message)
            if message.keys[0] == "payment-3":
                last.set()

        with Producer("once-per-key") as producer:
            for payment in ("payment-1", "payment-2", "payment-1", "payment-3"):
                queue = producer.publish_queues("OncePerKey")[0]
                producer.send(Message("OncePerKey", b"10 EUR", keys=[payment]), queue=queue)
        with PushConsumer(
            "once-per-key",
            listener,
            topics={"OncePerKey": "*"},
            orderly=True,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            last.wait(60)
        print(f"charged: {', '.join(charged)}")


if __name__ == "__main__":
    main()
