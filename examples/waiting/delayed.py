"""Messages that arrive later: python examples/waiting/delayed.py

Level 1 is one second, 2 five seconds, ... 18 two hours, as set by the broker's messageDelayLevel. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import time

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer

LEVELS = (2, 1)


def main() -> None:
    with Producer("delayed-producers") as producer:
        for level in LEVELS:
            sent_at = str(time.time())
            message = Message(
                "Delayed", f"of level {level}".encode(), delay_level=level, properties={"sentAt": sent_at}
            )
            producer.send(message)
            print(f"sent      a message of level {level}")
    consumer = LitePullConsumer("delayed-consumers", topics={"Delayed": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET)
    with consumer:
        for count, received in enumerate(consumer, 1):
            waited = time.time() - float(received.properties["sentAt"])
            print(f"consumed  a message {received.body.decode()} after {waited:.1f} s")
            if count == len(LEVELS):
                break


if __name__ == "__main__":
    main()
