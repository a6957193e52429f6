"""Every member of a group gets every message: python examples/client/broadcast.py

Each member keeps its offsets in its own file; a message it fails to consume is not redelivered. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable

from rocketlet import ConsumeFrom, Message, MessageModel, Producer, PushConsumer, ReceivedMessage

MEMBERS = ("cache-1", "cache-2")


def main() -> None:
    heard = {member: threading.Event() for member in MEMBERS}

    def listener(member: str) -> Callable[[ReceivedMessage], None]:
        def listen(message: ReceivedMessage) -> None:
            print(f"consumed  {message.body.decode()} by {member}")
            heard[member].set()

        return listen

    with Producer("config-service") as producer, tempfile.TemporaryDirectory() as directory:
        producer.send(Message("CacheInvalidation", b"drop user 7"))
        consumers = [
            PushConsumer(
                "caches",
                listener(member),
                topics={"CacheInvalidation": "*"},
                model=MessageModel.BROADCASTING,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                instance_name=member,
                offset_directory=directory,
            )
            for member in MEMBERS
        ]
        for consumer in consumers:
            consumer.start()
        for event in heard.values():
            event.wait(30)
        for consumer in consumers:
            consumer.shutdown()


if __name__ == "__main__":
    main()
